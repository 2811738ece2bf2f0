"""The caches of data sets on nodes: decisions that caches and simulations share.

``policy`` decides what a cache fetches and evicts. The caches themselves are in the monitor
(``stromboli.monitor.data_cache``).
"""
