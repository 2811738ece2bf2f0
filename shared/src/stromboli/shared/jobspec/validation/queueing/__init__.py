"""Validation of queues, their tree, their permissions and their reservations."""
