"""The data sets on nodes: reports of caches, and what each cache should have."""
