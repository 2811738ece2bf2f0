"""Copies the release version from the root's `pyproject.toml`; with `--check` it only compares.

    python -m tools.release_version [--check]

For a release, only the root's `project.version` is changed. Packages, charts and the image tags in
the documentation repeat it, because each of them is also read alone: a wheel is built from its own
`pyproject.toml`, a chart is installed from a clone. `strom version` prints the version of the
installed package. The chart of the trial broker has Kafka's own `appVersion`.
"""

import re
import sys
import tomllib
from pathlib import Path

from tools import environment

ROOT = Path(__file__).resolve().parents[1]
RELEASE = r"\d+\.\d+\.\d+"
_PROJECT = re.compile(rf'^(version = "){RELEASE}(")$', re.MULTILINE)
_CHART = re.compile(rf"^( *version: ){RELEASE}()$", re.MULTILINE)
_APPLICATION = re.compile(rf"^(appVersion: ){RELEASE}()$", re.MULTILINE)
_FILE = re.compile(rf"(stromboli-(?:[a-z$]+[-:])?){RELEASE}(\.tgz)?\b")
PAGES = ("docs/install.md", "docs/history.md", "docs/console.md")


def current(root: Path = ROOT) -> str:
    """The version of the next release."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def outputs(root: Path = ROOT) -> dict[Path, str]:
    """Path -> expected content of the file."""
    patterns = {
        root / member / "pyproject.toml": [_PROJECT] for member in environment.members(root)
    }
    for chart in (*root.glob("charts/*/Chart.yaml"), *root.glob("services/*/chart/Chart.yaml")):
        of_kafka = chart.parent.name == "kafka"
        patterns[chart] = [_CHART] if of_kafka else [_CHART, _APPLICATION]
    patterns |= {root / page: [_FILE] for page in PAGES}
    version, found = current(root), {}
    for path, replaced in patterns.items():
        text = path.read_text(encoding="utf-8")
        for pattern in replaced:
            text = pattern.sub(rf"\g<1>{version}\g<2>", text)
        found[path] = text
    return found


def main() -> None:
    """Write the files, or compare them with ``--check``."""
    stale = {
        path: text for path, text in outputs().items() if path.read_text(encoding="utf-8") != text
    }
    if sys.argv[1:] == ["--check"]:
        if stale:
            names = ", ".join(path.relative_to(ROOT).as_posix() for path in stale)
            sys.exit(
                f"out of date for version {current()}: {names}; run python -m tools.release_version"
            )
        return
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
