"""``strom job``: every command about jobs."""
