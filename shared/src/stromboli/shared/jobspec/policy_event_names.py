"""Events that life-cycle policies may name: the common lists for validation, CRDs and
controller."""

ANY = "*"
"""The event name that matches all events of pods and tasks that trigger actions."""
OOM_KILLED = "OOMKilled"
NODE_LOST = "NodeLost"
DEADLINE_EXCEEDED = "DeadlineExceeded"
PREEMPTED = "Preempted"
TERMINATION_CAUSES = (OOM_KILLED, NODE_LOST, DEADLINE_EXCEEDED, PREEMPTED)
"""Causes of a pod's end, which occur in addition to ``PodFailed`` or ``PodEvicted``. Volcano does
not have them. ``DeadlineExceeded`` is also an event of jobs."""
ACCEPTED = (
    ANY,
    "PodFailed",
    "PodEvicted",
    "PodPending",
    "Unknown",
    "TaskCompleted",
    "TaskFailed",
    "JobUpdated",
    *TERMINATION_CAUSES,
)
"""Events that admission accepts: Volcano's events, and the causes."""
IN_CRD = (
    ANY,
    "PodPending",
    "PodRunning",
    "PodFailed",
    "PodEvicted",
    "Unknown",
    "TaskCompleted",
    "OutOfSync",
    "CommandIssued",
    "JobUpdated",
    "TaskFailed",
    *TERMINATION_CAUSES,
)
"""Events that the schema of the CRDs accepts, as in Volcano, including events that admission
rejects."""
