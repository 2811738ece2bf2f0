"""Every rule of admission as cases that pass and cases that are rejected, for every entry point."""
