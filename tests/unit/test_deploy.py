"""The files that run it as a service or in a container: as far as they can be judged without either."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml  # type: ignore[import-untyped]
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from prometheus_client.parser import text_string_to_metric_families

from bot.settings.load import parse_settings
from bot.signing import pem_of
from bot.web.guard import Callers
from bot.web.health import health_routes
from bot.web.server import build_app
from tests.kit.world import config, scene, url_of

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


IMAGE_USER, _, IMAGE_GROUP = re.findall(r"^USER (.+)$", CONTAINERFILE, re.MULTILINE)[-1].partition(":")
(IMAGE_PORT,) = re.findall(r"^EXPOSE (\d+)$", CONTAINERFILE, re.MULTILINE)
(IMAGE_FOLDER,) = set(re.findall(r"^(?:WORKDIR|VOLUME) (/data)$", CONTAINERFILE, re.MULTILINE))
IMAGE_CONFIG = json.loads(re.findall(r"^CMD (\[.+\])$", CONTAINERFILE, re.MULTILINE)[-1])[-1]
STOPS_WITHIN = int(re.findall(r"^TimeoutStopSec=(\d+)s$", UNIT.read_text(), re.MULTILINE)[0])


@pytest.fixture
def cluster() -> dict[str, dict[str, Any]]:
    """By kind: what `kubectl apply -k` makes of the base, and beside it what is applied apart."""
    folder = ROOT / "deploy/kubernetes"
    base = yaml.safe_load((folder / "kustomization.yaml").read_text())
    apart = [path.name for path in folder.glob("*.yaml") if path.name not in base["resources"]]
    assert sorted(apart) == [
        "ingress.example.yaml",
        "kustomization.yaml",
        "secret.example.yaml",
        "service-monitor.yaml",
    ]
    found = [yaml.safe_load((folder / name).read_text()) for name in (*base["resources"], *apart)]
    (generated,) = base["configMapGenerator"]
    data = {name: (folder / name).read_text() for name in generated["files"]}
    found.append({"kind": "ConfigMap", "metadata": {"name": generated["name"]}, "data": data})
    return {each["kind"]: each for each in found}


@pytest.fixture
def pod(cluster: dict[str, dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = cluster["Deployment"]["spec"]["template"]["spec"]
    return spec


@pytest.fixture
def compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    return services


def test_clusters_configuration_is_complete_with_its_secret(cluster: dict[str, dict[str, Any]]) -> None:
    given = dict(cluster["Secret"]["stringData"])
    assert given["CLARIFY_SIGNING_KEY"] == "...", "a key that is known to all would be worse than none"
    given["CLARIFY_SIGNING_KEY"] = pem_of(Ed25519PrivateKey.generate()).decode()
    settings = parse_settings(
        cluster["ConfigMap"]["data"]["clarify.toml"], file=Path(IMAGE_CONFIG), environ=given
    )
    assert settings.database_url == given["CLARIFY_DATABASE_URL"]
    assert settings.by_variable.keys() == given.keys(), "and nothing is given that it does not ask for"
    assert (settings.http.host, str(settings.http.port)) == ("0.0.0.0", IMAGE_PORT)
    assert settings.trust.key_env in given, (
        "the pods' files are gone with them: a key there is lost at each start"
    )


def test_service_and_compose_say_where_the_signing_key_goes() -> None:
    for name in ("compose.yaml", "clarify.service"):
        text = (ROOT / "deploy" / name).read_text()
        assert "[trust] key_env" in text, name
        assert "CLARIFY_SIGNING_KEY=" in text, name


def test_cluster_keeps_its_secret_apart_from_what_is_applied_again(
    cluster: dict[str, dict[str, Any]], pod: dict[str, Any]
) -> None:
    assert "secret.example.yaml" not in cluster["Kustomization"]["resources"]
    (source,) = pod["containers"][0]["envFrom"]
    assert source["secretRef"]["name"] == cluster["Secret"]["metadata"]["name"]
    (image,) = cluster["Kustomization"]["images"]
    assert pod["containers"][0]["image"].partition(":")[0] == image["name"]


def test_cluster_opens_the_bots_port_and_slacks_path_alone(cluster: dict[str, dict[str, Any]]) -> None:
    labels = cluster["Deployment"]["spec"]["template"]["metadata"]["labels"]
    policy = cluster["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    (port,) = cluster["Service"]["spec"]["ports"]
    (opened,) = policy["ingress"]
    assert [each["port"] for each in opened["ports"]] == [port["targetPort"]]
    assert all(each.keys() == {"namespaceSelector"} for each in opened["from"])
    (rule,) = cluster["Ingress"]["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert (path["path"], path["pathType"]) == ("/slack/events", "Exact")
    assert path["backend"]["service"] == {
        "name": cluster["Service"]["metadata"]["name"],
        "port": {"name": port["name"]},
    }


def test_clusters_replicas_are_each_scraped(cluster: dict[str, dict[str, Any]]) -> None:
    service, monitor = cluster["Service"], cluster["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in [each["name"] for each in service["spec"]["ports"]]
    assert endpoint["path"] == METRICS


def test_clusters_probes_are_those_of_the_app(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    ((port,),) = [[each["name"] for each in container["ports"]]]
    paths = {}
    for name in ("livenessProbe", "startupProbe", "readinessProbe"):
        assert container[name]["httpGet"]["port"] == port
        paths[name] = container[name]["httpGet"]["path"]
    # By /readyz, all pods would leave the service while Slack is away.
    assert set(paths.values()) == {"/livez"}
    assert set(paths.values()) <= build_app([health_routes([])], Callers({})).openapi()["paths"].keys()


def test_clusters_pods_are_as_the_image_expects(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    assert [str(each["containerPort"]) for each in container["ports"]] == [IMAGE_PORT]
    security = pod["securityContext"]
    assert (str(security["runAsUser"]), str(security["runAsGroup"])) == (IMAGE_USER, IMAGE_GROUP)
    assert str(security["fsGroup"]) == IMAGE_GROUP
    mounted = {each["mountPath"]: each for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert "emptyDir" in volumes[mounted[IMAGE_FOLDER]["name"]]
    config = mounted[IMAGE_CONFIG]
    assert volumes[config["name"]]["configMap"]["name"] == "clarify"
    assert config["subPath"] == "clarify.toml"


def test_clusters_pods_have_the_time_to_hand_over(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    (*_, waits) = container["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["terminationGracePeriodSeconds"] >= int(waits) + STOPS_WITHIN


def test_cluster_keeps_a_replica_whatever_is_drained(cluster: dict[str, dict[str, Any]]) -> None:
    spec = cluster["Deployment"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert 2 <= spec["replicas"] <= 10, "Slack's connections"
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] < spec["replicas"]
    assert spec["minReadySeconds"] >= 10 + 5  # the longest that clicks wait at a start, and the time to begin
    assert cluster["PodDisruptionBudget"]["spec"]["maxUnavailable"] < spec["replicas"]
    (apart,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"].values()
    selectors = [
        spec["selector"]["matchLabels"],
        cluster["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        cluster["Service"]["spec"]["selector"],
        apart[0]["podAffinityTerm"]["labelSelector"]["matchLabels"],
    ]
    assert all(each.items() <= labels.items() for each in selectors)


def test_compose_runs_replicas_on_a_database_that_is_ready(compose: dict[str, Any]) -> None:
    bot, db = compose["bot"], compose["db"]
    assert bot["deploy"]["replicas"] >= 2
    assert bot["depends_on"] == {"db": {"condition": "service_healthy"}}
    assert db["healthcheck"]["test"]
    assert (
        ROOT / "deploy" / bot["build"]["context"] / bot["build"]["dockerfile"]
    ).resolve() == ROOT / "Containerfile"
    (extra,) = re.findall(r"^\[(\w+)\]$", bot["build"]["args"]["EXTRAS"])
    assert extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert f"./clarify.toml:{IMAGE_CONFIG}:ro" in bot["volumes"]
    (ports,) = bot["ports"]
    first, last = re.fullmatch(rf"127\.0\.0\.1:(\d+)-(\d+):{IMAGE_PORT}", ports).groups()  # type: ignore[union-attr]
    assert int(last) - int(first) + 1 == bot["deploy"]["replicas"], "one for each"
    assert int(bot["stop_grace_period"].removesuffix("s")) >= STOPS_WITHIN
    (variable,) = bot["environment"]
    assert variable == "CLARIFY_DATABASE_URL"


RULES = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
WATCHED = """
[[webhooks]]
url = "http://127.0.0.1:9/hook"
secret_env = "HOOK_SECRET"

[[producers]]
name = "pusher"
"""
METRICS = "/metrics"
TARGET = {"job", "instance"}  # labels that Prometheus gives to what it scrapes


def test_alerts_are_rules_as_prometheus_has_them() -> None:
    """What `promtool check rules` refuses, but for the expressions."""
    whole = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text())
    assert whole.keys() == {"groups"}
    assert all(each.keys() <= {"name", "interval", "rules"} and each["name"] for each in whole["groups"])
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert re.fullmatch(r"\d+[smhd]", rule.get("for", "0s"))
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert all(isinstance(text, str) for text in rule["annotations"].values())
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_alerts_say_what_is_to_be_done() -> None:
    for rule in RULES:
        told = rule["annotations"]
        assert told.keys() == {"summary", "description", "action", "runbook"}
        assert told["runbook"] == f'docs/operate/monitoring.md, "Alerts", {rule["alert"]}'
        named = set(re.findall(r"\$labels\.(\w+)", told["summary"] + told["description"]))
        kept = set(re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", rule["expr"]))))
        assert named <= (kept or TARGET), rule["alert"]


async def figures(folder: Path) -> dict[str, dict[str, set[str]]]:
    """What a bot that nothing was asked of yet says in /metrics: figure → label → its values."""
    async with scene(folder) as stage:
        stage.environ |= {"HOOK_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
        async with (
            stage.bot(config(stage.producer.url, more=WATCHED)) as bot,
            aiohttp.ClientSession() as http,
        ):
            for _ in range(2):  # a request is counted when it is over
                async with http.get(f"{url_of(bot)}{METRICS}") as answer:
                    text = await answer.text()
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            of = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                of.setdefault(label, set()).add(value)
    return found


def expressions() -> dict[str, str]:
    """What is asked of Prometheus, by where it stands: the alerts, and the panels and variables of the dashboard."""
    board = json.loads((ROOT / "deploy/dashboard.json").read_text())
    panels = {
        f"panel {panel['title']}, {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel.get("targets", ())
    }
    variables = {
        each["name"]: each["query"] for each in board["templating"]["list"] if each["type"] == "query"
    }
    assert panels
    return {rule["alert"]: rule["expr"] for rule in RULES} | panels | variables


@pytest.mark.needs("webhooks")
async def test_alerts_and_dashboard_ask_for_figures_and_labels_that_are_there(tmp_path: Path) -> None:
    there = await figures(tmp_path)
    for where, expression in expressions().items():
        names = {*re.findall(r"\bclarify_\w+", expression)}
        assert names, where
        assert names <= there.keys(), where
        for name, matchers in re.findall(r"\b(clarify_\w+)\{([^}]*)\}", expression):
            for label, how, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', matchers):
                if label in TARGET:
                    continue
                known = there[name][label]
                if how != "!=" and name != "clarify_http_requests_total":  # there are only those that came up
                    pattern = value if how == "=~" else re.escape(value)
                    assert any(re.fullmatch(pattern, each) for each in known), where
        grouped = " ".join(re.findall(r"\b(?:by|on) \(([^)]*)\)", expression))
        for name in names:
            assert set(re.findall(r"\w+", grouped)) - TARGET <= there[name].keys(), where


def test_dashboards_legends_name_what_its_panels_group_by() -> None:
    board = json.loads((ROOT / "deploy/dashboard.json").read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            kept = set(re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", target["expr"]))))
            assert named <= kept, panel["title"]
            assert panel["description"]
