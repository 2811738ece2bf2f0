"""Types of options and arguments that commands share: how they are parsed, and their help."""
