"""`python -m bot.cli`: runs `clarify` without its installed script."""

from bot.cli import main

main()
