"""The Kubernetes API as services see it (``port``), and its adapter (``kubernetes``)."""
