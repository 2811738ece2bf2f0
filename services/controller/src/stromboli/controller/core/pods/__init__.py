"""Pods of a job, with their volumes, plugin objects and debug tools."""
