#!/bin/sh
# Runs KWOK's control plane until SIGTERM, then stops it: the entry point of the container.
#
# The image's own entry point is a shell without a handler for SIGTERM. As process 1 it ignores the
# signal, so an engine waits 10 s, kills it and reports status 137.
#
# A node is played by the KWOK process that holds the node's lease, and a new process waits until
# the lease of the old one has expired. So leases are short, also in a volume of an earlier
# version, which keeps its 200 s; and those that a stopped process left are deleted.
set -u
LEASE_S=10
saved=$HOME/.kwok/clusters/kwok/kwok.yaml

stop() {
  kwokctl stop cluster
  exit 0
}
trap stop TERM INT

if [ -f "$saved" ]; then
  sed -i "s/--node-lease-duration-seconds=[0-9]*/--node-lease-duration-seconds=$LEASE_S/" "$saved"
fi
# In the background, as everything that takes long: a signal interrupts `wait` alone.
kwokctl create cluster "$@" &
wait $! || exit 1
kwokctl kubectl delete leases --all --namespace=kube-node-lease --wait=false
while true; do
  sleep 10 &
  wait $!
  kwokctl start cluster >/tmp/start.log 2>&1 || cat /tmp/start.log
done
