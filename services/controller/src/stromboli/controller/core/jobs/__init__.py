"""The life cycle of a job: its reconcile, policies, status transitions and messages."""
