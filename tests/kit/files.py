"""Files of others, as they are written by those who care for their readers."""

from __future__ import annotations

from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Put a whole file in place at once: a busy machine can stand still between emptying a file and filling it."""
    fresh = path.with_name(f"{path.name}.fresh")
    fresh.write_text(text)
    fresh.replace(path)
