"""The start of a scheduler imports what its first session needs, and no more."""

import subprocess
import sys

PROGRAM = """
import sys
from stromboli.scheduler import service
service.warm_up.run()
assert "stromboli.scheduler.core.plugins.predicates.device_selectors" in sys.modules
print(*sorted({"cel", "prompt_toolkit", "typer"} & sys.modules.keys()))
"""


def test_a_scheduler_without_device_selectors_does_not_import_their_language() -> None:
    """Its package imports a command line, too: 0.4 s of CPU at each start."""
    started = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (started.returncode, started.stdout) == (0, "\n"), started.stderr
