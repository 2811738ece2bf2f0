"""Feasibility and scores of nodes: affinity, spread, batch placement, scoring, packing."""
