"""Queues: state, status counters, default queues and revalidation."""
