"""Forecasts when pending gangs will start, by running real sessions in virtual time.

Owns the estimator of run times, the virtual scheduler, and the forward simulation. Reads objects
and events as values; writes nothing. ``stromboli.scheduler.forecasting`` runs it in the background.
"""
