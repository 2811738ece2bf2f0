"""Helm as the charts' tests run it: with nothing of the user's, and offline."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from stromboli.testkit.parts import tools

ROOT = Path(__file__).parents[3]
SERVICES = ("admission", "controller", "monitor", "scheduler")
"""Those of the chart of everything."""
SEPARATE = ("console", "history")
CHARTS = {
    "base": ROOT / "charts/base",
    "kafka": ROOT / "charts/kafka",
    "stromboli": ROOT / "charts/stromboli",
    **{service: ROOT / "services" / service / "chart" for service in (*SERVICES, *SEPARATE)},
}
KUBERNETES = "1.34.0"
BROKERS = ("--set", "global.kafka.bootstrap={kafka.example.com:9093}")
DATABASE = (
    *("--set", "database.url=postgresql://strom@db.example.com:6432/history"),
    *("--set", "database.secret=db", "--set", "queries.secret=shared"),
)
"""What the chart of the history needs."""
REST = ("--set", "server.url=https://stromboli-admission.batch:8480")
"""What the chart of the console needs."""
Object = dict[str, Any]


class HelmError(Exception):
    """Helm's error message."""


def run(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """What it prints. Raises HelmError."""
    done = subprocess.run(
        [tools.locate().program("helm"), *arguments],
        env={**os.environ, "HELM_NO_PLUGINS": "1", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if "found symbolic link" not in line]
        raise HelmError("\n".join(said))
    return done.stdout


def rendered(chart: str, *options: str, release: str = "") -> list[Object]:
    """The objects of a chart, in the namespace ``batch``."""
    command = ["template", release or f"stromboli-{chart}", str(CHARTS[chart])]
    text = run(*command, "--namespace", "batch", "--kube-version", KUBERNETES, *options)
    return [document for document in yaml.safe_load_all(text) if document]


def of_kind(objects: Sequence[Object], kind: str) -> Iterator[Object]:
    """Those of a kind."""
    return (each for each in objects if each["kind"] == kind)


def the_only(objects: Sequence[Object], kind: str, ending: str = "") -> Object:
    """The only object of a kind (whose name has this end)."""
    (found,) = (
        each for each in of_kind(objects, kind) if each["metadata"]["name"].endswith(ending)
    )
    return found


def agents_account(chart: Sequence[Object]) -> dict[str, str]:
    """The settings in the monitor's chart that say whose reports the monitor takes."""
    (container,) = the_only(chart, "Deployment")["spec"]["template"]["spec"]["containers"]
    found = {it["name"]: it["value"] for it in container["env"] if "value" in it}
    return {name: value for name, value in found.items() if "_AGENTS_ACCOUNT" in name}
