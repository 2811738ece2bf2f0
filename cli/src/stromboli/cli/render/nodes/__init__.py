"""Nodes as text, as rows and as pictures. Pure."""
