"""The log as services see it (``port``), and its Kafka adapter (``kafka``)."""
