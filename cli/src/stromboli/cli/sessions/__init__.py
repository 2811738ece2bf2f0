"""Sessions in pods from the terminal of the user: commands and forwarded ports."""
