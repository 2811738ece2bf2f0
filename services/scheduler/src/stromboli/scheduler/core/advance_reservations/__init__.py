"""AdvanceReservations: nodes that are reserved for a period, for some jobs or for maintenance.

Not to be confused with the plugin ``reservation``, with which the scheduler keeps room for a gang
that cannot start yet.
"""
