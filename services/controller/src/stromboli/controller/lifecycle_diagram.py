"""Draws ``docs/job-lifecycle.md`` from the table of the life cycle.

``python -m stromboli.controller.lifecycle_diagram`` writes it; ``--check`` fails if it differs.
"""

import sys
from pathlib import Path

from stromboli.controller.core import lifecycle

PLACE = Path(__file__).parents[5] / "docs" / "job-lifecycle.md"
"""Path of the generated page."""
_HEAD = """# The life of a job

Drawn from the table in `services/controller/src/stromboli/controller/core/lifecycle.py` by
`python -m stromboli.controller.lifecycle_diagram`; do not edit.

A transition that is not listed here does not exist. {finished} are final.

In {stopping} pods are deleted and none is created. The
next attempt is a *new version* of the job, so that old pods are distinguished from new ones. A
partial restart (of a task, a pod, a partition) deletes only that part and keeps the version.

```mermaid
stateDiagram-v2
"""
_ROWS = """```

| from | event | when | to | counts as a retry | new version |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The content of the page."""
    stopping = sorted(lifecycle.STOPPING - lifecycle.FINISHED)
    head = _HEAD.format(
        finished=", ".join(sorted(lifecycle.FINISHED)), stopping=", ".join(stopping)
    )
    return head + "".join(_drawn()) + _ROWS + "".join(_rows())


def _drawn() -> list[str]:
    arrows = [
        f"    {phase or '[*]'} --> {move.to}: {lifecycle.MEANING[event]}\n"
        for (phase, event), move in lifecycle.TABLE.items()
    ]
    return arrows + [f"    {phase} --> [*]\n" for phase in sorted(lifecycle.FINISHED)]


def _rows() -> list[str]:
    return [
        f"| {phase or '(new)'} | {event} | {lifecycle.MEANING[event]} | {move.to} "
        f"| {'yes' if move.retry else ''} | {'yes' if move.new_version else ''} |\n"
        for (phase, event), move in lifecycle.TABLE.items()
    ]


def main(arguments: list[str]) -> int:
    """Write the page, or check it with ``--check``. Returns the exit status."""
    wanted = page()
    if arguments == ["--check"]:
        if PLACE.is_file() and PLACE.read_text() == wanted:
            return 0
        sys.stderr.write(
            f"{PLACE} differs from the table: "
            "run python -m stromboli.controller.lifecycle_diagram\n"
        )
        return 1
    PLACE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
