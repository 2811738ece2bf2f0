"""Which nodes are feasible for a task and how good each is: affinity, spread, batches, scores."""
