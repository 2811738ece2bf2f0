"""``strom node``."""
