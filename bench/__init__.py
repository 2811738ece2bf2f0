"""Benchmarks. Each starts its own parts, and its last line of stdout is one JSON object."""
