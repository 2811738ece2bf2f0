"""The plugin ``tdm``; see the module of its name."""
