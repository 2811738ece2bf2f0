"""Labels, annotations and finalizers: ours under one prefix, and Volcano's that users already have.

Ours all start with ``PREFIX`` so that an operator can find, select and remove them with one rule.
"""

PREFIX = "stromboli.sh/"

TRACEPARENT = PREFIX + "traceparent"
"""W3C trace context of the submission; on Job, PodGroup and Pod."""
DECISION = PREFIX + "decision"
"""Id of the decision that bound a pod; written by the Binding itself, so a repeated bind is told
from another's."""
RUNNER = PREFIX + "runner"
"""Node label: which runner plays the node's kubelet (``simulated``). A node has one runner."""
RUN_SECONDS = PREFIX + "run-seconds"
"""Pod annotation for simulated nodes: how long the pod runs, in seconds (``0.5``)."""
EXIT_CODE = PREFIX + "exit-code"
"""Pod annotation for simulated nodes: the exit code its containers end with."""
STARTS_WITH = PREFIX + "starts-with"
"""Pod annotation for simulated nodes: the pod's work begins once so many pods of its job run, as
that of processes which wait for each other does."""

JOB_NAME = "volcano.sh/job-name"
JOB_NAMESPACE = "volcano.sh/job-namespace"
JOB_VERSION = "volcano.sh/job-version"
JOB_RETRY_COUNT = "volcano.sh/job-retry-count"
TASK_SPEC = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"
TASK_PRIORITY = "volcano.sh/task-priority"
QUEUE_NAME = "volcano.sh/queue-name"
TEMPLATE_UID = "volcano.sh/template-uid"
PREEMPTABLE = "volcano.sh/preemptable"
COOLDOWN_TIME = "volcano.sh/cooldown-time"
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
JDB_MIN_AVAILABLE = "volcano.sh/jdb-min-available"
JDB_MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
NUMA_TOPOLOGY_POLICY = "volcano.sh/numa-topology-policy"
PARTITION_ID = "volcano.sh/partition-id"
HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"
JOB_TYPE = "volcano.sh/job-type"
GROUP_NAME = "scheduling.k8s.io/group-name"
"""Pod annotation: the PodGroup, in the pod's namespace, that the pod is a member of."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's copy of the whole object: never carried in our messages."""
