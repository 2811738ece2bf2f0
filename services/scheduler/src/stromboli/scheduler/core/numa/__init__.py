"""Hardware of a node: CPUs, devices and memory by NUMA node, and how the kubelet assigns them."""
