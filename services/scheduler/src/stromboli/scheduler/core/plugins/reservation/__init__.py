"""The plugin ``reservation``; see the module of its name."""
