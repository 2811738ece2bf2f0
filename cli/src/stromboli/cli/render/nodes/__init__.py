"""Nodes as text, as rows and as images. Pure."""
