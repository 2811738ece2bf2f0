"""Hardware of a node: what it has, what is taken together, and what the kubelet will accept."""
