"""Writes the definitions again after an edit of `source/`; with `--check` it only compares.

    python -m stromboli.shared.jobspec.crds [--check]

With `--check` nothing is written, and the exit status is 1 if a file is not what would be written.
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
        sys.exit(f"not up to date: {', '.join(stale)}; run python -m stromboli.shared.jobspec.crds")
else:
    compose.write()
