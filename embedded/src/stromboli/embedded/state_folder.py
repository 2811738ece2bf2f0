"""Layout of the state folder of ``strom up``."""

from pathlib import Path

STATE = Path(".strom")
"""The default state folder."""
LOG = "log.db"


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can read; restrict an existing one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def embedded(state: Path) -> Path:
    """Return the folder of log and cluster."""
    return state / "embedded"
