"""The Home tab: what waits for a person, and how the agents stand; republished when something of it changes."""
