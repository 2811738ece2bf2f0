"""The plugin ``extender``; see the module of its name."""
