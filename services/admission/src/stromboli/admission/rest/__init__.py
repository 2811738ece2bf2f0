"""The REST API: routes by kind, lists, bulk requests, watches, and its OpenAPI description."""
