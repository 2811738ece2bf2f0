"""What the monitor knows and what it says about it: pure."""
