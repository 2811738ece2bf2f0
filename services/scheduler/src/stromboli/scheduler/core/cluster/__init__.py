"""The objects of one cluster, materialized as the model of sessions, with indexes and sums."""
