"""The command line of the installers: install missing parts, or print where they are."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from tools.real.errors import InstallError

NOT_INSTALLED = 3


def run(
    target: str, purpose: str | None, where: Callable[[], str], install: Callable[[], object]
) -> int:
    """Run an installer; returns its exit status: 0, 1 after a failed installation, 3 if ``--where``
    finds a part missing. ``target``: of make; ``purpose``: a text whose first line says what
    is installed."""
    parser = argparse.ArgumentParser(description=(purpose or "").partition("\n")[0])
    parser.add_argument(
        "--where",
        action="store_true",
        help="print the paths as JSON; exit with 3 if a part is missing",
    )
    if parser.parse_args().where:
        try:
            print(where())
        except InstallError as error:
            print(error, file=sys.stderr)
            return NOT_INSTALLED
        return 0
    try:
        install()
    except InstallError as error:
        print(f"{target}: {error}", file=sys.stderr)
        return 1
    return 0
