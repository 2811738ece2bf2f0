"""The scheduler's configuration: actions, tiers of plugins and their arguments."""
