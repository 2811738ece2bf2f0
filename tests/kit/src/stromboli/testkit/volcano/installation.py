"""The installation that a takeover starts from: fifty jobs in every phase, queues and leases.

Each case states the phase that the job must have once another controller has taken over, while no
pod has ended since, and the phase after its pods have succeeded.
"""

import msgspec

from stromboli.testkit.volcano import jobs
from stromboli.testkit.volcano.jobs import (
    ABSENT,
    FAILED,
    RUNNING,
    SUCCEEDED,
    UNBOUND,
    Document,
    JobLeft,
    TaskLeft,
)

NAMESPACE = "volcano-system"
LEASES = ("volcano", "vc-controller-manager")
LEASE_S = 15
HIGH = "research-high"
WORKERS = (TaskLeft(pods=(RUNNING, RUNNING)),)
STOPPED = (TaskLeft(pods=(SUCCEEDED, ABSENT)),)
RESTART = {"event": "PodFailed", "action": "RestartJob"}
EVICTED = {"event": "PodEvicted", "action": "RestartTask"}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A job, its phase after the takeover, and its phase at the end."""

    left: JobLeft
    after: str
    end: str = "Completed"


def queues() -> list[Document]:
    """``root`` and ``default`` as the scheduler creates them, and a hierarchy of users' queues."""
    return [
        _queue("root", reclaimable=False),
        _queue("default", parent="root"),
        _queue("research", parent="root", weight=4, priority=10),
        _queue("vision", parent="research", weight=2),
        _queue("old", "Closing", parent="root"),
        _queue("shut", "Closed", parent="root"),
    ]


def _queue(name: str, state: str = "Open", **spec: object) -> Document:
    return {
        "apiVersion": jobs.SCHEDULING,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": True, **spec},
        "status": {
            "state": state,
            "allocated": {"cpu": "0", "memory": "0"},
            "reservation": {},
        },
    }


def priority_class() -> Document:
    """The class of the jobs with a priority."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": HIGH},
        "value": 1000,
    }


def leases(renewed_at: str) -> list[Document]:
    """The leases of a scheduler and a controller that were killed after ``renewed_at``."""
    return [
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "holderIdentity": f"{name}-7d9f_0c1e2d",
                "leaseDurationSeconds": LEASE_S,
                "acquireTime": renewed_at,
                "renewTime": renewed_at,
                "leaseTransitions": 1,
            },
        }
        for name in LEASES
    ]


def cases() -> list[Case]:
    """All fifty jobs."""
    return [*_running(), *_waiting(), *_restarting(), *_ending(), *_ended()]


def _running() -> list[Case]:
    two = (TaskLeft(name="master", pods=(RUNNING,)), TaskLeft(pods=(RUNNING,) * 3))
    mixed = (TaskLeft(pods=(RUNNING, SUCCEEDED, SUCCEEDED)),)
    wide = (TaskLeft(pods=(RUNNING,) * 4 + (UNBOUND,) * 2),)
    found = [
        _run("plain"),
        _run("env", plugins={"env": []}),
        _run("svc", plugins={"svc": []}),
        _run("ssh", plugins={"ssh": []}),
        _run("mpi", tasks=two, plugins={"ssh": [], "svc": [], "env": []}),
        _run("keep-policy", tasks=two, plugins={"svc": ["--disable-network-policy"]}),
        _run("high", priority_class=HIGH, queue="research"),
        _run("high-mpi", tasks=two, priority_class=HIGH, plugins={"ssh": [], "svc": []}),
        _run("deep", queue="vision"),
        _run("closing", queue="old"),
        _run("mixed", tasks=mixed),
        _run("elastic", tasks=wide, min_available=2),
        _run("elastic-svc", tasks=wide, min_available=4, plugins={"svc": []}),
        _run("first-success", tasks=mixed, min_success=3),
        _run("one-restart", version=1, retry_count=1, policies=(RESTART,)),
        _run("last-try", version=2, retry_count=2, policies=(RESTART,), plugins={"svc": []}),
        _run("part-restarted", retry_count=1, policies=(EVICTED,)),
        _run("tolerant", tasks=(TaskLeft(pods=(FAILED, RUNNING, RUNNING)),), min_available=2),
    ]
    return [Case(left=left, after="Running") for left in found]


def _run(
    name: str,
    *,
    tasks: tuple[TaskLeft, ...] = WORKERS,
    min_available: int | None = None,
    min_success: int | None = None,
    queue: str = "default",
    version: int = 0,
    retry_count: int = 0,
    policies: tuple[Document, ...] = (),
    plugins: dict[str, list[str]] | None = None,
    priority_class: str = "",
) -> JobLeft:
    if min_available is not None:
        # The webhook's default for a task would be all of its pods.
        tasks = (msgspec.structs.replace(tasks[0], min_available=min_available), *tasks[1:])
    return JobLeft(
        name=f"run-{name}",
        phase="Running",
        group="Running",
        tasks=tasks,
        min_available=min_available,
        min_success=min_success,
        queue=queue,
        version=version,
        retry_count=retry_count,
        policies=policies,
        plugins=plugins or {},
        priority_class=priority_class,
    )


def _waiting() -> list[Case]:
    none = (TaskLeft(pods=(ABSENT, ABSENT)),)
    unbound = (TaskLeft(pods=(UNBOUND, UNBOUND)),)
    half = (TaskLeft(pods=(RUNNING, UNBOUND)),)
    every: dict[str, list[str]] = {"svc": [], "ssh": [], "env": []}
    found = [
        JobLeft(name="wait-new", phase="", tasks=none),
        JobLeft(name="wait-plain", phase="Pending", group="Pending", tasks=none),
        JobLeft(name="wait-mpi", phase="Pending", group="Pending", tasks=none, plugins=every),
        JobLeft(
            name="wait-high",
            phase="Pending",
            group="Pending",
            tasks=none,
            priority_class=HIGH,
            queue="research",
        ),
        JobLeft(name="wait-groupless", phase="Pending", tasks=none, queue="vision"),
        JobLeft(
            name="wait-again",
            phase="Pending",
            group="Pending",
            tasks=none,
            version=1,
            retry_count=1,
        ),
        JobLeft(name="inqueue-none", phase="Pending", group="Inqueue", tasks=none),
        JobLeft(name="inqueue-unbound", phase="Pending", group="Inqueue", tasks=unbound),
        JobLeft(name="inqueue-svc", phase="Pending", group="Inqueue", tasks=unbound, plugins=every),
        JobLeft(name="inqueue-half", phase="Pending", group="Inqueue", tasks=half),
        JobLeft(
            name="inqueue-again",
            phase="Pending",
            group="Inqueue",
            tasks=unbound,
            version=1,
            retry_count=1,
        ),
    ]
    return [Case(left=left, after="Running") for left in found]


def _restarting() -> list[Case]:
    part = (TaskLeft(name="a", pods=(ABSENT, ABSENT)), TaskLeft(name="b", pods=(RUNNING, RUNNING)))
    gone = (TaskLeft(pods=(ABSENT, ABSENT)),)
    return [
        Case(
            left=JobLeft(
                name="restart-whole", phase="Restarting", tasks=gone, version=1, retry_count=1
            ),
            after="Running",
        ),
        Case(
            left=JobLeft(
                name="restart-task", phase="Restarting", group="Running", tasks=part, retry_count=1
            ),
            after="Running",
        ),
        Case(
            left=JobLeft(
                name="restart-resumed",
                phase="Restarting",
                tasks=STOPPED,
                version=2,
                pod_version=0,
                retry_count=1,
            ),
            after="Running",
        ),
        Case(
            left=JobLeft(
                name="restart-exhausted",
                phase="Restarting",
                tasks=(TaskLeft(pods=(FAILED, ABSENT)),),
                version=3,
                pod_version=2,
                retry_count=3,
            ),
            after="Failed",
            end="Failed",
        ),
    ]


def _ending() -> list[Case]:
    alive = (TaskLeft(pods=(SUCCEEDED, RUNNING)),)
    found = []
    for phase, end in (
        ("Completing", "Completed"),
        ("Terminating", "Terminated"),
        ("Aborting", "Aborted"),
    ):
        for name, tasks in (("alive", alive), ("stopped", STOPPED)):
            left = JobLeft(
                name=f"{phase.lower()}-{name}", phase=phase, tasks=tasks, version=1, pod_version=0
            )
            found.append(Case(left=left, after=end, end=end))
    return found


def _ended() -> list[Case]:
    """Jobs that ended and were cleaned up: the job version is increased, and the PodGroup is
    deleted."""
    done = (TaskLeft(pods=(SUCCEEDED, SUCCEEDED)),)
    bad = (TaskLeft(pods=(SUCCEEDED, FAILED)),)
    every: dict[str, list[str]] = {"svc": [], "ssh": [], "env": []}
    found = [
        JobLeft(name="completed-plain", phase="Completed", tasks=done, version=1, pod_version=0),
        JobLeft(name="completed-svc", phase="Completed", tasks=done, plugins=every, version=1),
        JobLeft(name="completed-shut", phase="Completed", tasks=done, queue="shut", version=2),
        JobLeft(name="completed-now", phase="Completed", tasks=done, group="Completed"),
        JobLeft(name="failed-plain", phase="Failed", tasks=bad, version=1, pod_version=0),
        JobLeft(name="failed-tries", phase="Failed", tasks=bad, version=3, retry_count=3),
        JobLeft(name="failed-policy", phase="Failed", tasks=bad, version=1, policies=(RESTART,)),
        JobLeft(name="terminated", phase="Terminated", tasks=STOPPED, version=1, pod_version=0),
        JobLeft(name="aborted-plain", phase="Aborted", tasks=STOPPED, version=1, pod_version=0),
        JobLeft(name="aborted-svc", phase="Aborted", tasks=STOPPED, version=1, plugins=every),
        JobLeft(name="aborted-empty", phase="Aborted", tasks=(TaskLeft(pods=(ABSENT,)),)),
    ]
    return [Case(left=left, after=left.phase, end=left.phase) for left in found]
