"""A pod's life on a node, as pure functions: no clock, no files, no processes.

``pod``: what a pod asks for. ``lifecycle``: what to do next. ``status``: what to tell about it.
``environment``, ``volumes``, ``names``: what its containers are given. ``unheeded``: what it asks
for and does not get.
"""
