"""The only reader of configuration and environment."""
