"""Decisions in flight: published, and not confirmed by the cluster yet."""
