"""Writes the policies again after an edit of the rules; with `--check` it only compares.

    python -m stromboli.shared.jobspec.policies [--check]

With `--check` nothing is written, and the exit status is 1 if a file is not what would be written.
"""

import sys

from stromboli.shared.jobspec.policies import manifests

TEXTS = {path: manifests.text(path.stem) for path in manifests.paths()}
if sys.argv[1:] == ["--check"]:
    stale = [
        path.name
        for path, text in TEXTS.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if stale:
        sys.exit(
            f"not up to date: {', '.join(stale)}; run python -m stromboli.shared.jobspec.policies"
        )
else:
    for path, text in TEXTS.items():
        path.write_text(text, encoding="utf-8")
