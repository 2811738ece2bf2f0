package v1beta1

// QueueAllocationGateKey is used by Volcano's suites and missing from the newest published version
// of its API module.
const QueueAllocationGateKey = "scheduling.volcano.sh/queue-allocation-gate"
