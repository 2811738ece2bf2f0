"""Hypothesis strategies that generate clusters, and how many examples a property takes."""
