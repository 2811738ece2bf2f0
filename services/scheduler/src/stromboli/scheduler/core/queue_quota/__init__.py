"""Quota accounting of queues: usage, shares and hierarchy, for the plugins that order queues."""
