"""Events that life-cycle policies may name: the one list for validation, CRDs and controller."""

ANY = "*"
"""Every event of a pod or task that triggers actions."""
OOM_KILLED = "OOMKilled"
NODE_LOST = "NodeLost"
DEADLINE_EXCEEDED = "DeadlineExceeded"
PREEMPTED = "Preempted"
TERMINATION_CAUSES = (OOM_KILLED, NODE_LOST, DEADLINE_EXCEEDED, PREEMPTED)
"""Why a pod ended, beside ``PodFailed`` or ``PodEvicted``; not in Volcano. ``DeadlineExceeded`` is
an event of jobs, too."""
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
"""What admission accepts: Volcano's events, and the causes."""
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
"""What the schema of the CRDs accepts, as Volcano's does: also events that admission refuses."""
