"""Forecasts when pending gangs start, in parallel to sessions: ``forecaster`` runs in the leader,
``worker`` in a separate process, and ``frames`` is their protocol.
"""
