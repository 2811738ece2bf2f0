"""The tasks of a job: the pods that its spec requires, and counts of its pods."""
