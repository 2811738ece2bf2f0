"""Execution of core commands and scheduler decisions against the API server and the log."""
