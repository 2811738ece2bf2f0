"""The objects of one cluster, folded into the model and indexed, with their sums."""
