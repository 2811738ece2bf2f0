"""Pods of a job and what belongs to them: volumes, plugin objects, debug tools."""
