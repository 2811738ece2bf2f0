"""Scheduler decisions: what to execute for each, and the outcome to publish."""
