"""The hardware of a machine, from readings of its kernel, GPU driver and kubelet.

Input: readings as data. Output: one ``NodeTopology``. Every source is optional: missing or invalid
readings are left out and listed in ``read_failures``, and everything else remains valid.
"""
