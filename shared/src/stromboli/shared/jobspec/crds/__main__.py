"""Generates the definitions from `source/`.

    python -m stromboli.shared.jobspec.crds [--check]

With `--check` it writes nothing and exits with 1 if a file is out of date.
"""

import sys

from stromboli.shared.jobspec.crds import compose

if sys.argv[1:] == ["--check"]:
    stale = [
        path.name
        for path, text in compose.compose_all().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if stale:
        sys.exit(f"out of date: {', '.join(stale)}; run python -m stromboli.shared.jobspec.crds")
else:
    compose.write()
