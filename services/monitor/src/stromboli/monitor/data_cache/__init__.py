"""The cache of data sets on a node: fetches, verifies and evicts copies, and reports them.

::

    monitor ── what the node should have ──▶ cache.NodeCache ── report of copies ──▶ monitor
                 policy (stromboli.shared.data_cache) │ start, stop, evict
    origins (https, files, object stores) ──▶ fetching.Fetch ──▶ store.CacheFolder

Owns one folder of the node. ``python -m stromboli.monitor.data_cache`` runs it on a node; the
embedded system runs one for each process node.

A URI is input of users that is read with the rights and the network position of this process:
``allowed`` accepts only origins that the operator lists.
"""
