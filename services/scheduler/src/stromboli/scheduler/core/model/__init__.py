"""The model of one session: nodes as columns, queues, jobs, tasks and their requirements.

Owns the data types; reads and writes nothing. Every other package of the core builds on it.
"""
