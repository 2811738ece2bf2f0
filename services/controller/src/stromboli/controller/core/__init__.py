"""Decisions of the controller: state in, commands out. No clock, no I/O, no waiting."""
