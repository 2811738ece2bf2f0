"""Generates the chart files that are derived from code; with `--check` it only compares.

    python -m tools.charts [--check]

Custom resource definitions, policies and webhooks come from the code, the permitted values from
`schemas`; `charts/common/global.yaml` has the values that all services share. With `--check`
nothing is written, and the exit status is 1 if a file is out of date.
"""

import sys
from pathlib import Path

from tools.charts import objects, schemas, shared_values

ROOT = Path(__file__).resolve().parents[2]


def outputs() -> dict[Path, str]:
    """Path -> expected content of the file."""
    return {
        ROOT / name: text
        for part in (objects.files(), schemas.files(), shared_values.files(ROOT))
        for name, text in part.items()
    }


def main() -> None:
    """Write the files, or compare them with ``--check``."""
    stale = [
        path
        for path, text in outputs().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if sys.argv[1:] == ["--check"]:
        if stale:
            names = ", ".join(path.relative_to(ROOT).as_posix() for path in stale)
            sys.exit(f"out of date: {names}; run python -m tools.charts")
        return
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(outputs()[path], encoding="utf-8")


if __name__ == "__main__":
    main()
