"""miniwdl's container backend ``strom``: the class that its plug-in registry loads."""

from stromboli.miniwdl.container import StromContainer

__all__ = ["StromContainer"]
