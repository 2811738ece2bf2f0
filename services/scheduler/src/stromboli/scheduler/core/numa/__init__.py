"""Hardware of nodes: CPUs, devices and memory by NUMA node, and how kubelets assign them."""
