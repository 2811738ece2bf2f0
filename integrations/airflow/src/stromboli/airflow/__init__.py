"""Airflow on Stromboli: tasks that are jobs.

``operators`` submits a job and waits for its end without a worker slot; ``sensors`` waits for a job
that another program submitted; ``hook`` has the connection type; ``executor`` runs each task
instance as a job. Only these and ``triggers`` import Airflow; the other modules run without it.
"""
