"""The log of decisions: a signed chain that shows whether anything was taken out of the history or put into it."""
