"""The plugin ``numa-aware``; see the module of its name."""
