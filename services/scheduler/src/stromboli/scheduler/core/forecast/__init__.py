"""When pending gangs will start: the real sessions run forward in virtual time.

Owns the estimator of run times, the virtual scheduler, and the simulation forward. Reads objects
and events as values; writes nothing. ``stromboli.scheduler.forecasting`` runs it in the background.
"""
