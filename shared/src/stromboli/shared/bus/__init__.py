"""The port to the log (``port``) and its Kafka adapter (``kafka``)."""
