"""The scheduler's decisions: pure functions over arrays, without clock, client or randomness."""
