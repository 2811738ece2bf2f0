"""Simulated nodes over the cluster port: with the embedded cluster or a real API server.

``rules``: how long a pod runs and how it ends. ``statuses``: pod statuses as a kubelet writes them.
``simulated``: the runner.
"""
