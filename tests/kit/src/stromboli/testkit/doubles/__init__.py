"""Test doubles: log wrappers that fail or lag, a kubelet API, an HTTP server, recorded machines."""
