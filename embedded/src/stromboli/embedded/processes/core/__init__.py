"""The life cycle of a pod on a process node as pure functions: no clock, no files, no processes.

``pod``: the fields that a node reads. ``lifecycle``: the next actions. ``status``: the published
status. ``environment``, ``volumes``, ``addresses``: inputs of the containers.
``unsupported_fields``: fields of the pod that have no effect here.
"""
