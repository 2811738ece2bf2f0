"""What stands where in the folder of ``strom up``."""

from pathlib import Path

STATE = Path(".strom")
"""The folder, if none is named."""
LOG = "log.db"


def embedded(state: Path) -> Path:
    """Where log and cluster are."""
    return state / "embedded"
