"""The plugin ``queue-policy``; see the module of its name."""
