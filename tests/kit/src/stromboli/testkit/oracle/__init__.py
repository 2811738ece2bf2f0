"""Slow, obvious reference models that the fast implementations are compared with."""
