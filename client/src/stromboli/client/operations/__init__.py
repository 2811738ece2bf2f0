"""The operations of the REST API: each builds a request and decodes its response."""
