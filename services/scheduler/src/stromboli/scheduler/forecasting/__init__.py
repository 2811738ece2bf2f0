"""Forecasts when pending gangs start, without delaying sessions: ``forecaster`` runs in the leader,
``worker`` in a separate process, and ``frames`` is their protocol.
"""
