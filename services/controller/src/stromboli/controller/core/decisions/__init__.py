"""Decisions of the scheduler: the requests that execute them, and the outcomes to publish."""
