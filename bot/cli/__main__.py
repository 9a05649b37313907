"""`python -m bot.cli`: the `clarify` command where its script is not installed."""

from bot.cli import main

main()
