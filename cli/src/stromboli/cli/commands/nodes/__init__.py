"""``strom node``: nodes with their hardware, history and maintenance."""
