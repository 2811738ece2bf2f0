"""Generates the policy manifests from `rules`.

    python -m stromboli.shared.jobspec.policies [--check]

With `--check` it writes nothing and exits with 1 if a file is out of date.
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
            f"out of date: {', '.join(stale)}; run python -m stromboli.shared.jobspec.policies"
        )
else:
    for path, text in TEXTS.items():
        path.write_text(text, encoding="utf-8")
