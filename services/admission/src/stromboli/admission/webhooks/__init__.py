"""Webhooks that the API server calls, and their certificate."""
