"""Benchmarks. Each starts the processes that it measures; its last line of stdout is one JSON
object."""
