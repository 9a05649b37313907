from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from bot.cli.running import Shell
from tests.unit.bot.cli.kit import Prompt


def test_forget_refuses_what_is_asked_again_while_the_person_reads(
    prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt.answer(prompt.ask(42, "engineer", "architect"), "PostgreSQL")

    def reads(_shell: Shell, question: str) -> None:
        assert "CLR-42-001" in question
        with ThreadPoolExecutor() as elsewhere:
            again = elsewhere.submit(prompt.ask, 42, "engineer", "architect", words="And now?").result()
        assert (again.id, again.round) == ("CLR-42-001", 2)

    monkeypatch.setattr(Shell, "ask_back", reads)
    said = prompt("forget", "CLR-42-001")
    assert (said.code, said.out) == (2, "")
    assert "Agents are still waiting for CLR-42-001. Answer first, or use --abandon" in said.err
    assert prompt.record("CLR-42-001")["thread"][-1]["body"] == "And now?"
    assert prompt.fine("forget", "CLR-42-001", "--abandon", "--yes").startswith("Forgotten: CLR-42-001.")
