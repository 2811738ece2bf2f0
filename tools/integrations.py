"""Builds `.venv-integrations`: the packages of `.venv` and the engines of
`integrations/requirements.txt`.

It is a separate environment, so that Dask, Snakemake and others are installed only for the tests
that run them. It is rebuilt when a lock or a member changes.
"""

import hashlib
import os
import sys
import time
from pathlib import Path

from tools import environment

ROOT = Path(__file__).parents[1]
FOLDER = Path(".venv-integrations")
STAMP = FOLDER / "stromboli-setup.txt"
LOCKS = ("requirements.txt", "integrations/requirements.txt")


def fingerprint() -> str:
    """Digest of everything that determines the content of the environment."""
    digest = hashlib.sha256(str(environment.fingerprint(Path())).encode())
    digest.update(Path(LOCKS[1]).read_bytes())
    return digest.hexdigest()


def build() -> None:
    """Build a new environment. Raises SetupError."""
    python, uv = str(FOLDER / "bin/python"), ".venv/bin/uv"
    listing = environment.run(
        "reading pip's settings", [".venv/bin/python", "-m", "pip", "config", "list"], os.environ
    )
    variables = environment.uv_environment(environment.pip_settings(listing), os.environ)
    environment.run(
        f"creating {FOLDER}",
        [uv, "venv", "--clear", "--quiet", "--python", ".venv/bin/python", str(FOLDER)],
        variables,
    )
    environment.run(
        "installing the engines",
        [uv, "pip", "sync", "--python", python, "--require-hashes", *LOCKS],
        variables,
    )
    editable = [word for member in environment.members(Path()) for word in ("-e", member)]
    environment.run(
        "installing the members",
        [uv, "pip", "install", "--python", python, "--no-deps", "--no-build-isolation", *editable],
        variables,
    )


def main() -> int:
    """Make the environment match the locks and return the exit status."""
    os.chdir(ROOT)
    want = fingerprint()
    if STAMP.is_file() and STAMP.read_text() == want:
        return 0
    started = time.monotonic()
    environment.print_progress(f"the engines of integrations, in {FOLDER}")
    try:
        build()
    except environment.SetupError as failure:
        print(f"setup: {failure}", file=sys.stderr)
        return 1
    STAMP.write_text(want)
    environment.print_progress(f"done in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
