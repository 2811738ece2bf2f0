"""The plugin ``data-locality``."""
