"""The port to the Kubernetes API (``port``) and its adapter (``kubernetes``)."""
