"""The life of a job: one reconcile step, its policies, status transitions and messages."""
