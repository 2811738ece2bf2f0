"""Responses of the REST API other than Kubernetes objects: history, forecasts, health."""
