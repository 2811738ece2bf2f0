"""The hardware of a machine, from readings of its kernel, GPU driver and kubelet.

Readings come in as data, one ``NodeTopology`` goes out. Every source is optional: missing or
invalid readings are left out and listed in ``unread``, and everything else remains valid.
"""
