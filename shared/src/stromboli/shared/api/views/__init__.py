"""What the REST API returns beside objects of Kubernetes: records of history, forecasts, health."""
