"""The scheduler's configuration: actions, tiers of plugins, arguments; read with every mistake."""
