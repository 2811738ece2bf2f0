"""Simulates a cluster and a workload in virtual time.

``core`` is the pure kernel: a heap of events, a virtual clock, the scheduler's own cache and
sessions, and the life-cycle rules of the controller's core. The modules beside it read files, run
the kernel and show results. Reads CSV and YAML files and the scheduler's configuration; writes
stdout and the report file. See docs/simulation.md.
"""
