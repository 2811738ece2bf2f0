"""The plugin ``capacity``; see the module of its name."""
