"""The plugin ``deviceshare``; see the module of its name."""
