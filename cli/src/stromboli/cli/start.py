"""The entry points of the scripts.

The imports of ``main`` take a third of the time of a short command. Ctrl-C during these imports
must end the command without a traceback, like Ctrl-C later.
"""

import sys
from types import ModuleType

from stromboli.cli.errors import INTERRUPTED


def main() -> None:
    """The entry point of the script ``strom``."""
    _commands().main()


def plugin() -> None:
    """The entry point of ``kubectl-strom``, which implements ``kubectl strom``."""
    _commands().plugin()


def complete_plugin() -> None:
    """The entry point of ``kubectl_complete-strom``, which completes ``kubectl strom``."""
    _commands().complete_plugin()


def _commands() -> ModuleType:
    try:
        from stromboli.cli import main
    except KeyboardInterrupt:
        print("strom: interrupted", file=sys.stderr)  # noqa: T201 - before typer is imported
        sys.exit(INTERRUPTED)
    return main
