"""`clarify demo`: agents that ask, the bot as a process, and the local workspace between them."""


class DemoError(Exception):
    """The demo could not go on: it, or one of its processes, failed."""
