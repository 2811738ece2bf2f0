"""The kernel of a simulation: no clock, randomness or I/O; workload and seed are arguments."""
