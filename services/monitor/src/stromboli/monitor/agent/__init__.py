"""The agent of a node: reads what the machine has and who holds it, and reports to the monitor.

It runs on every node, so it is small: one thread, no event loop, no Kubernetes client, no Kafka.
"""
