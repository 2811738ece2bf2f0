"""What stands where in the folder of ``strom up``."""

from pathlib import Path

STATE = Path(".strom")
"""The folder, if none is named."""
LOG = "log.db"


def make_private(folder: Path) -> None:
    """Make a folder that only its owner reads, also one that was made more open before."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def embedded(state: Path) -> Path:
    """Where log and cluster are."""
    return state / "embedded"
