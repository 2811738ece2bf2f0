"""Nodes that simulate pods, over the Cluster port: with the embedded cluster or a real API server.

``rules``: how long a pod runs and how it ends. ``statuses``: what a kubelet would write.
``simulated``: the runner.
"""
