"""The plugin ``task-topology``; see the module of its name."""
