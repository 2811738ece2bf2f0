"""Generates the files in compose/ that are derived from code; with `--check` it only compares.

    python -m tools.compose [--check]

With `--check` nothing is written, and the exit status is 1 if a file is out of date.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from tools.compose import dashboards, webhooks

FOLDER = Path(__file__).parents[2] / "compose"


def files() -> Mapping[Path, str]:
    """Path -> expected content of the file."""
    boards = FOLDER / "grafana" / "dashboards"
    return {
        FOLDER / "manifests" / "webhooks.yaml": webhooks.text(),
        **{boards / f"{board.name}.json": board.text() for board in dashboards.ALL},
    }


def main(arguments: list[str]) -> None:
    """Write the files, or compare them with ``--check``."""
    stale = [
        path
        for path, text in files().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if arguments == ["--check"]:
        if stale:
            names = ", ".join(path.name for path in stale)
            sys.exit(f"out of date: {names}; run python -m tools.compose")
        return
    for path in stale:
        path.write_text(files()[path], encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
