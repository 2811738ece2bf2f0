"""The plugin ``predicates``; see the module of its name."""
