"""Decisions of the controller: what is, in; commands, out. No clock, no I/O, no waiting."""
