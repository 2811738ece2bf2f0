"""The monitor's state and the records that it publishes: pure."""
