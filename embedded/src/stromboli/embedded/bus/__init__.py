"""The embedded log: every topic in one SQLite file, for one process."""

from stromboli.embedded.bus.embedded import EmbeddedBus

__all__ = ["EmbeddedBus"]
