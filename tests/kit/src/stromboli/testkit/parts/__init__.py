"""Runs the real parts: Kafka, etcd, kube-apiserver, kube-controller-manager, KWOK.

    async with real.RealParts(state_directory, nodes=100) as parts:
        parts.kafka_bootstrap, parts.kubeconfig, parts.api_url, parts.token, parts.ca_file

Every part listens on loopback only, on ports free at its start; keeps its state and its log in
the given directory; starts again on the same ports and data after `stop()` or `kill()`; and ends
with the process that started it, unless it is detached. Nothing in here is bound to
an event loop, so a part started in one may be stopped in another.

`tools.locate()` returns the paths of the programs that `make real-tools` installed.
"""
