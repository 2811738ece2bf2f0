"""The scheduler's cache: the log folded into the model, with in-flight decisions assumed on top.

Also decides which changes trigger a session and which gangs are left out as unschedulable.
"""
