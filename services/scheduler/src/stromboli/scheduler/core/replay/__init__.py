"""Replay of recorded sessions from the log."""
