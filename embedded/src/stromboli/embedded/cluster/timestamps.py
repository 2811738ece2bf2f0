"""Timestamps of Kubernetes objects."""

from datetime import UTC, datetime


def timestamp(moment: datetime) -> str:
    """Format as UTC in whole seconds, such as ``2026-01-31T12:00:00Z``. Sorts by time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
