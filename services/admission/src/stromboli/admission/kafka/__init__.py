"""Submissions over Kafka."""
