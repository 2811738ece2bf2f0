"""Simple, slow reference models with which the fast implementations are compared."""
