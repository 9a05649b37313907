"""Claude Code, GitHub Copilot CLI and Codex, as npm has them: for the tests of the plugin and of the hooks.

They are large, so only `python -m tests.kit.coding_agents` installs them; without them, the tests that need them are skipped.
A scripted model (`tests.kit.models`) plays the part of their vendors' servers: no account is needed, and nothing leaves this
machine.
"""

from __future__ import annotations

from pathlib import Path

from tests.kit.node import are_installed

FOLDER = Path(__file__).parent
_PROGRAMS = {
    "claude": "@anthropic-ai/claude-code-*/claude",
    "copilot": "@github/copilot-*/copilot",
    "codex": "@openai/codex-*/vendor/*/bin/codex",
}


def program(name: str) -> Path:
    """Returns the path of `claude`, `copilot` or `codex`.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    if not are_installed(FOLDER):
        raise FileNotFoundError("not installed: python -m tests.kit.coding_agents installs them")
    found = (FOLDER / "node_modules").glob(_PROGRAMS[name])
    return min(found, key=lambda each: len(each.parent.name))  # npm may bring one for musl, too
