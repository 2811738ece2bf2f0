"""Migrations of the tables by Alembic: each has a way forward and a way back."""
