"""Feasible nodes of a task and their scores: affinity, spread, batch placement, scoring."""
