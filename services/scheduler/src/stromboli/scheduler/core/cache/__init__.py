"""The scheduler's cache: the log materialized into the model, plus assumed in-flight decisions.

Also decides which changes trigger a session and which gangs are left out as unschedulable.
"""
