"""The plugin ``drf``; see the module of its name."""
