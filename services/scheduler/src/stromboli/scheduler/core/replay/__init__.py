"""Past sessions, run again from their records and the log."""
