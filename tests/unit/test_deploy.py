"""The files that run it as a service or in a container: as far as they can be judged without either."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "Containerfile").read_text()
UNIT = ROOT / "deploy/clarify.service"


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze, of the package systemd"
)
def test_unit_is_one_that_systemd_understands(tmp_path: Path) -> None:
    here = tmp_path / "clarify.service"  # where its program and its user are not installed
    text = UNIT.read_text().replace("/opt/clarify/bin/clarify run", "/bin/true run")
    here.write_text(re.sub(r"(User|Group)=clarify", r"\1=root", text))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(here)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_unit_leaves_alone_what_only_somebody_can_repair() -> None:
    parser = configparser.RawConfigParser(strict=False, delimiters=["="])
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys as they are written
    parser.read_string(UNIT.read_text())
    service = parser["Service"]
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"  # ConfigurationError.exit_code
    assert service["User"] != "root"
    assert "EnvironmentFile" in service
    assert "Environment" not in service


def test_containerfile_copies_what_is_there_and_not_ignored() -> None:
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINERFILE, re.MULTILINE)
        for name in line.split()
    ]
    assert copied
    allowed = (ROOT / ".containerignore").read_text().splitlines()
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in allowed, name


def test_containerfile_runs_as_nobody_in_particular() -> None:
    users = re.findall(r"^USER (.+)$", CONTAINERFILE, re.MULTILINE)
    assert users[-1] == "10001:10001"
    assert CONTAINERFILE.index("USER ") < CONTAINERFILE.index("ENTRYPOINT")


class Health(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/livez" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_containers_health_is_the_process(status: int, healthy: bool) -> None:
    match = re.search(r"CMD (\[\"python\".*\])", CONTAINERFILE)
    assert match
    command = json.loads(match[1])
    server = HTTPServer(("127.0.0.1", 0), type("Here", (Health,), {"status": status}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        code = command[2].replace(":8787", f":{server.server_port}")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert (done.returncode == 0) is healthy
