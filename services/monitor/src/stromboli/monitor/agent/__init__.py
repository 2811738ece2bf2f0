"""The node agent: reads a node's hardware and its exclusive allocations, and reports to the
monitor.

It runs on every node, so it is small: one thread, no event loop, no Kubernetes client, no Kafka.
"""
