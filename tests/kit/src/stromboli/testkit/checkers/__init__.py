"""Checkers that read the history of an API server and list violated invariants."""
