"""The data sets on nodes: reports of caches, and the data sets that each cache should contain."""
