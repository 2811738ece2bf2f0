"""Forecasts of when pending gangs start, beside the sessions: ``forecaster`` runs in the leader,
``worker`` in a process of its own, ``frames`` is what they exchange.
"""
