"""Jobs that options, scripts and other jobs describe. Pure."""
