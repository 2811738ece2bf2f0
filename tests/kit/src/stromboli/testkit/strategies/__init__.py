"""Hypothesis strategies that generate clusters, and the number of examples of a property."""
