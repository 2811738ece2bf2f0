"""Principals, their authentication and their authorization."""
