"""What the scheduler decides: plain functions over columns, without clock, client or randomness."""
