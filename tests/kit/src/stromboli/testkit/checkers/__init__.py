"""Checkers that read a history from outside and name each violated invariant."""
