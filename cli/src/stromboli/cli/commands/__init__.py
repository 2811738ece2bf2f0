"""The commands of ``strom``, one module for each group."""
