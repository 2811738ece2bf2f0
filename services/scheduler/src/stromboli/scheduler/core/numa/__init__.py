"""CPUs of a node: where they are, which are taken together, and what the kubelet will accept."""
