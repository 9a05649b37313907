"""`tsc` reads clients/clarify.ts as strictly as it can, and as the projects see it that copy the file."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import CLIENT, ROOT
from tests.kit import node

HERE = Path(__file__).parent
ALONE: dict[str, dict[str, Any]] = {
    "Node": {"types": ["node"], "lib": ["es2022"]},
    "Bun and Deno": {"types": [], "lib": ["esnext", "dom"], "module": "preserve", "moduleResolution": "bundler"},
    "edge": {"types": [], "lib": ["es2022", "webworker"], "module": "es2022", "moduleResolution": "bundler"},
    "a library": {"types": ["node"], "lib": ["es2022"], "declaration": True, "isolatedDeclarations": True},
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, node_program: Path) -> Path:
    """Returns a folder with the client, its tests, and npm's packages."""
    for folder in ("clients", "tests/clients"):
        (tmp_path / folder).mkdir(parents=True)
        for file in [*(ROOT / folder).glob("*.ts"), *(ROOT / folder).glob("tsconfig.json")]:
            shutil.copy(file, tmp_path / folder)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node_modules").symlink_to(node.FOLDER / "node_modules")
    return tmp_path


def tsc(project: Path, config: Path, node_program: Path) -> str:
    """Returns what is wrong."""
    command = [str(node_program), "node_modules/typescript/bin/tsc", "-p", str(config), "--pretty", "false"]
    return subprocess.run(
        command, cwd=project, capture_output=True, text=True, check=False, timeout=100
    ).stdout


def test_types_follow_from_what_is_asked(project: Path, node_program: Path) -> None:
    assert tsc(project, project / "tests/clients", node_program) == ""


@pytest.mark.parametrize("name", ALONE)
def test_file_fits_into(name: str, project: Path, node_program: Path) -> None:
    options = json.loads((HERE / "tsconfig.json").read_text())["compilerOptions"] | ALONE[name]
    config = project / "clients/tsconfig.json"
    config.write_text(json.dumps({"compilerOptions": options, "files": ["clarify.ts"]}))
    assert tsc(project, config, node_program) == ""


def test_mistakes_are_found(project: Path, node_program: Path) -> None:
    """Else the other tests here would say nothing."""
    program = project / "tests/clients/types.ts"
    program.write_text(
        program.read_text().replace('"65" | "67">', '"65" | "68">').replace("timout", "timeout")
    )
    said = tsc(project, project / "tests/clients", node_program)
    assert said.count("error TS2554: Expected 1 arguments, but got 0.") == 2
    assert said.count("error TS2578: Unused '@ts-expect-error' directive.") == 2


def test_file_is_short_and_depends_on_nothing() -> None:
    text = CLIENT.read_text()
    assert text.count("\n") < 800
    assert "import" not in [line.split(" ")[0] for line in text.splitlines()]
    assert "node:" not in text
