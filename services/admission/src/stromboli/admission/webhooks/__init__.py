"""Webhooks that the API server calls, and the certificate they are served with."""
