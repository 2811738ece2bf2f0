"""Labels, annotations and finalizers: Stromboli's, which have one prefix, and Volcano's, for
compatibility.

Stromboli's keys all begin with ``PREFIX``, so that an operator can find, select and remove them
with one rule.
"""

PREFIX = "stromboli.sh/"

TRACEPARENT = PREFIX + "traceparent"
"""W3C trace context of the submission; on Job, PodGroup and Pod."""
DECISION = PREFIX + "decision"
"""Id of the decision that bound a pod, or ids of the last decisions that enqueued a PodGroup.
Written with the Binding or the phase, so that a repeated decision is distinguished from a new one.
"""
RUNNER = PREFIX + "runner"
"""Node label: the program that acts as the node's kubelet (``simulated``). A node has one."""
RUN_SECONDS = PREFIX + "run-seconds"
"""Pod annotation for simulated nodes: how long the pod runs, in seconds (``0.5``)."""
EXIT_CODE = PREFIX + "exit-code"
"""Pod annotation for simulated nodes: the exit code of its containers."""
SUBMIT_DIRECTORY = PREFIX + "submit-directory"
"""Pod annotation for process nodes: containers without a ``workingDir`` start in this directory if
it exists, as the scripts of sbatch do."""
STARTS_WITH = PREFIX + "starts-with"
"""Pod annotation for simulated nodes: the pod's run time begins once this number of the job's pods
run, as for processes that wait for each other.
"""

USER = PREFIX + "user"
"""The user who submitted a Job, JobFlow, CronJob or PodGroup. Admission sets it and overwrites any
value in the manifest.
"""
NOTIFY = PREFIX + "notify"
"""Job: the notifications that it requests, as ``ops-slack=Failed
mail:ann@example.org=Completed``."""
USER_GROUPS = PREFIX + "user-groups"
"""The groups of ``USER`` at the time of submission, one per line."""
ALLOWED_NAMESPACES = PREFIX + "allowed-namespaces"
"""Queue or PriorityClass: namespaces in which it may be used, separated by commas or lines."""
ALLOWED_USERS = PREFIX + "allowed-users"
"""Queue or PriorityClass: users who may use it in any namespace."""
ALLOWED_GROUPS = PREFIX + "allowed-groups"
"""Queue or PriorityClass: groups whose members may use it in any namespace."""
RUNNING_ESTIMATE = PREFIX + "running-estimate"
"""PodGroup: the expected run time of its tasks (``1h30m``), from the Job's
``spec.runningEstimate``.
"""
PLAN_FOLLOWS = PREFIX + "plan-follows"
"""PodGroup: ``true`` if the controller publishes a plan of its pods, which may be empty, when it
creates the PodGroup. Sessions wait for this plan for three seconds at most."""
RESERVATION = PREFIX + "reservation"
"""Job and its PodGroup: the AdvanceReservation whose nodes its pods use, and no others."""
QUEUE_POLICY = PREFIX + "queue-policy"
"""Queue: the order in which its jobs are scheduled."""
VIOLATIONS = PREFIX + "violations"
"""Queue: the violations for which admission would reject its current spec; kept up to date by the
controller."""
SHARE_BY = PREFIX + "share-by"
"""Queue: the unit of ``fair-share``: namespace or user."""
SHARE_WEIGHTS = PREFIX + "share-weights"
"""Queue: weights of namespaces or users, as ``team-a=3, team-b=1``."""
SHARE_HALF_LIFE = PREFIX + "share-half-life"
"""Queue: the half-life of past usage."""
MAINTENANCE = PREFIX + "maintenance"
"""Node: maintenance windows in which it must be empty, as ``2026-11-22T02:00:00Z/4h``, separated by
commas.
"""
MINIMUM_RUN_TIME = PREFIX + "minimum-run-time"
"""Queue or PodGroup: how long a task runs before it may be evicted."""
MINIMUM_RUN_TIME_LIMIT = PREFIX + "minimum-run-time-limit"
"""Queue: the highest ``MINIMUM_RUN_TIME`` that its jobs may request."""
EVICTION_NOTICE = PREFIX + "eviction-notice"
"""Queue or PodGroup: how long before its deletion an evicted pod is notified."""
EVICTION_NOTICE_LIMIT = PREFIX + "eviction-notice-limit"
"""Queue: the highest ``EVICTION_NOTICE`` that its jobs may request."""
EVICTED_AT = PREFIX + "evicted-at"
"""Pod: the time (RFC 3339) at which it will be deleted because it is evicted."""
IDEMPOTENCY = PREFIX + "idempotency"
"""Digest of the idempotency key and the request that created the object, so that a repeated request
is recognized.
"""
AFTER = PREFIX + "after"
"""Job: the jobs it depends on, as ``afterok:prepare,afterany:backup``."""
HELD = PREFIX + "held"
"""Job: the error that currently prevents the creation of its pods, as ``FailedCreate: create Pod
a-w-0: exceeded quota``. Kubernetes Events contain the same, but expire after an hour.
"""
ATTEMPT = PREFIX + "attempt"
"""Pod annotation: the number of the attempt of its task and index, from 1."""
INDEX_RETRY = PREFIX + "index-retry"
"""Pod annotation in an array: the failures of its index when the pod was created."""
CPUS = PREFIX + "cpus"
"""Pod annotation: the exclusive CPUs assigned to each container (JSON: name -> ``0-3,8``)."""
SILENT_SINCE = PREFIX + "silent-since"
"""Numatopology annotation: the time of the last report of the node's agent, if it is too old to
rely on.
"""

DEVICES = PREFIX + "devices"
"""Pod annotation: the devices assigned to each container (JSON: name -> resource -> ids)."""
MADE_FOR_PODS = PREFIX + "made-for-pods"
"""PodGroup: ``true`` if it was created for unmanaged pods; it is deleted with the last of these
pods."""
MADE_FROM = PREFIX + "made-from"
"""PodGroup created for unmanaged pods: the fields last derived from them (JSON), to distinguish a
change of the pods from a change by a user.
"""
DATA_SETS = PREFIX + "data-sets"
"""Pod annotation: the data sets that the pod reads from its node's cache (JSON list, see
``jobspec.data_sets``)."""
DATA_TO_FETCH = PREFIX + "data-to-fetch"
"""Pod annotation: what its node fetches before it starts, as of its bind: ``12.0 GB to fetch, about
40 s``."""

TOOLS = PREFIX + "tools"
"""Job: the debug tools that are requested for it, as a JSON list."""
TOOL = PREFIX + "tool"
"""Label of a debug tool's pod: the name of the tool."""
TOOL_OF = PREFIX + "tool-of"
"""Label of a debug tool's pod: the job it belongs to."""
TOOL_REQUEST = PREFIX + "tool-request"
"""Annotation of a debug tool's pod: digest of the request from which it was created."""

JOB_NAME = "volcano.sh/job-name"
JOB_NAMESPACE = "volcano.sh/job-namespace"
CRON_SCHEDULED_AT = "volcano.sh/cronjob-scheduled-timestamp"
CREATED_BY_TEMPLATE = "volcano.sh/createdByJobTemplate"
CREATED_BY_FLOW = "volcano.sh/createdByJobFlow"
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
SLA_WAITING_TIME = "volcano.sh/sla-waiting-time"
JDB_MIN_AVAILABLE = "volcano.sh/jdb-min-available"
JDB_MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
NUMA_TOPOLOGY_POLICY = "volcano.sh/numa-topology-policy"
TOPOLOGY_DECISION = "volcano.sh/topology-decision"
"""Pod annotation: the amounts of the assigned resources on each NUMA node (JSON)."""
RESOURCE_GROUP = "volcano.sh/resource-group"
"""Pod annotation: the operator's resource group that the pod belongs to."""
PARTITION_ID = "volcano.sh/partition-id"
CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"
"""Queue: ``true`` if it was closed together with its parent; it opens again with the parent."""
HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"
JOB_TYPE = "volcano.sh/job-type"
QUEUE_GATE = "scheduling.volcano.sh/queue-allocation-gate"
"""Pod annotation and scheduling gate: the pod is not scheduled until the queue admits it."""
NAMESPACE_QUEUE = "scheduling.volcano.sh/queue-name"
"""Namespace annotation: the default queue of its objects."""
NETWORK_TOPOLOGY_MODE = "volcano.sh/network-topology-mode"
NETWORK_TOPOLOGY_TIER = "volcano.sh/network-topology-highest-tier"
GROUP_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
"""On pods or their owner: the minimum number of pods that must run together."""
GROUP_MIN_RESOURCES = "scheduling.volcano.sh/group-min-resources"
"""On pods or their owner: the resources of that minimum number of pods, as a JSON object."""
GROUP_NAME = "scheduling.k8s.io/group-name"
"""Pod annotation: the PodGroup, in the pod's namespace, that the pod is a member of."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's copy of the whole object: removed from our messages."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""On a PersistentVolumeClaim: the node for which its volume is provisioned."""
