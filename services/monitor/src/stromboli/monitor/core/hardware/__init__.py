"""A machine's parts from what its kernel, its GPU driver and its kubelet say.

Readings come in as data, one ``NodeTopology`` goes out. Every source is optional: what is missing
or makes no sense is left out and named in ``unread``, and everything else still holds.
"""
