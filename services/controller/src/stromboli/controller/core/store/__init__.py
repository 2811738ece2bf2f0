"""The controller's cache: observed objects, our own write responses, and indexes over both."""
