"""Reads the history of an API server and lists the violated invariants.

It shares no code with the system on purpose: it reads Kubernetes JSON without the system's types,
so an error in these types cannot hide a violation.

The history is a list of watch events ``{"type": "ADDED"|"MODIFIED"|"DELETED", "object": {...}}`` of
pods, nodes and jobs in the server's order, starting with an empty cluster. Other kinds are read by
``job_lifecycle`` and ``claims``. An event with ``"listed": True`` comes from a list after a restart
of the server, so earlier events of its object may be missing.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

Event = dict[str, Any]
Object = dict[str, Any]

JOB_GROUP = "batch.volcano.sh/"
TASK, INDEX = "volcano.sh/task-spec", "volcano.sh/task-index"
VERSION = "volcano.sh/job-version"
GROUP = "scheduling.k8s.io/group-name"
FINAL_PHASES = ("Succeeded", "Failed")
_UNITS: dict[str, int | Decimal] = {
    "": 1,
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("0.001"),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
}
_UNITS |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}


def parse_quantity(text: str | int | float) -> Decimal:
    """The value of a Kubernetes quantity. Raises ValueError."""
    match = re.fullmatch(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)", str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    return Decimal(match[1]) * _UNITS[match[2]]


def live_pods(pods: Iterable[Object]) -> Iterator[Object]:
    """Pods that may have running processes."""
    return (pod for pod in pods if pod.get("status", {}).get("phase") not in FINAL_PHASES)


def job_of(pod: Object) -> str:
    """Uid of the job that a pod belongs to; empty if it belongs to none."""
    for owner in pod["metadata"].get("ownerReferences", ()):
        if owner["kind"] == "Job" and owner["apiVersion"].startswith(JOB_GROUP):
            return str(owner["uid"])
    return ""


def mark(thing: Object, key: str) -> str:
    """The value of an annotation; empty if it is absent."""
    return str((thing["metadata"].get("annotations") or {}).get(key, ""))


def phase_of(job: Object) -> str:
    """The phase in a job's status; empty if it has none."""
    return str(job.get("status", {}).get("state", {}).get("phase", ""))


def is_removed_by_policy(pod: Object, job: Object) -> bool:
    """Whether a policy of the job removes the pod when the job is in this state, because of a
    restart or the end of the job."""
    spec, status = job["spec"], job.get("status", {})
    has_policies = any(part.get("policies") for part in (spec, *spec.get("tasks", ())))
    is_replaced = int(mark(pod, VERSION) or 0) < status.get("version", 0)
    return has_policies and (is_replaced or phase_of(job) not in ("", "Pending", "Running"))


def requests(pod: Object) -> Counter[str]:
    """The requests of a pod: the sum of its containers or, if that is more, of an init container
    and the sidecars before it; its overhead; and one pod."""
    spec = pod["spec"]
    sidecars: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        requested = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars += requested
            requested = Counter()
        most |= sidecars + requested
    total = Counter({"pods": 1}) + _quantities(spec.get("overhead") or {})
    together = sidecars.copy()
    for container in spec["containers"]:
        together += _container_requests(container)
    return total + (together | most)


def _container_requests(container: Object) -> Counter[str]:
    return _quantities(container.get("resources", {}).get("requests") or {})


def _quantities(found: dict[str, Any]) -> Counter[str]:
    # Decimals count as well.
    return Counter({name: parse_quantity(text) for name, text in found.items()})


class ClusterState:
    """The state of the cluster after each event."""

    def __init__(self) -> None:
        self.pods: dict[str, Object] = {}
        self.nodes: dict[str, Object] = {}
        self.jobs: dict[str, Object] = {}
        self.jobs_ever: dict[str, Object] = {}
        self.bound_ever: dict[tuple[str, str], set[str]] = defaultdict(set)
        """(job, its version) -> pods that have been bound."""

    def take(self, event: Event) -> None:
        """Apply one event to the state."""
        thing = event["object"]
        uid = thing["metadata"]["uid"]
        table = {"Pod": self.pods, "Node": self.nodes, "Job": self.jobs}.get(thing["kind"], {})
        if event["type"] == "DELETED":
            table.pop(uid, None)
        else:
            table[uid] = thing
        if thing["kind"] == "Job":
            self.jobs_ever[uid] = thing
        if thing["kind"] == "Pod" and thing["spec"].get("nodeName"):
            self.bound_ever[job_of(thing), mark(thing, VERSION)].add(uid)


def duplicate_pods(model: ClusterState) -> Iterator[str]:
    """Yield live pods with the same index of the same task of a job."""
    seen: dict[tuple[str, str, str], str] = {}
    for pod in live_pods(model.pods.values()):
        place = (job_of(pod), mark(pod, TASK), mark(pod, INDEX))
        name = pod["metadata"]["name"]
        if place[0] and place in seen:
            yield f"pods {seen[place]} and {name} are both {place[1]}-{place[2]} of one job"
        seen[place] = name


def overcommitted_nodes(model: ClusterState) -> Iterator[str]:
    """Yield nodes whose pods request more than is allocatable."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in live_pods(model.pods.values()):
        if node := pod["spec"].get("nodeName"):
            used[node].update(requests(pod))
    for node in model.nodes.values():
        room = node["status"].get("allocatable", {})
        for name, amount in used[node["metadata"]["name"]].items():
            if amount > parse_quantity(room.get(name, 0)):
                yield f"node {node['metadata']['name']} has {amount} {name} of {room.get(name, 0)}"


def partially_bound_gangs(model: ClusterState) -> Iterator[str]:
    """Yield versions of jobs of which some pods are bound, but fewer than minAvailable."""
    for (uid, _), pods in model.bound_ever.items():
        job = model.jobs.get(uid)
        needed = job["spec"].get("minAvailable", 0) if job else 0
        if job and len(pods) < needed:
            yield f"job {job['metadata']['name']} has {len(pods)} of {needed} pods bound"


def _possible_states(model: ClusterState, uid: str, later: Iterable[Event]) -> Iterator[Object]:
    """The job's last recorded state, and the next one if that is from a list: the job may have
    reached it before the listed version."""
    if uid in model.jobs_ever:
        yield model.jobs_ever[uid]
    following = next((it for it in later if it["object"]["metadata"]["uid"] == uid), None)
    if following is not None and following.get("listed"):
        yield following["object"]


def violations(
    history: Iterable[Event],
    *,
    deleted_by_user: frozenset[str] = frozenset(),
    retries: dict[str, int] | None = None,
) -> list[str]:
    """All violations in order; empty if there are none.

    ``deleted_by_user``: names of jobs that a user deleted. ``retries``: the retryCount that each
    job must have in the end (0 if not listed).
    """
    found: list[str] = []
    model = ClusterState()
    events = list(history)
    for position, event in enumerate(events):
        thing = event["object"]
        if event["type"] == "DELETED" and thing["kind"] == "Job":
            if thing["metadata"]["name"] not in deleted_by_user:
                found.append(f"Job {thing['metadata']['name']} was deleted, but not by a user")
        elif event["type"] == "DELETED" and thing["kind"] == "Pod":
            states = _possible_states(model, job_of(thing), events[position + 1 :])
            if not any(
                job["metadata"]["name"] in deleted_by_user or is_removed_by_policy(thing, job)
                for job in states
            ):
                name = thing["metadata"]["name"]
                found.append(f"Pod {name} was deleted, but neither by a user nor by a policy")
        model.take(event)
        if thing["kind"] in ("Pod", "Node"):
            found += (
                line
                for line in (*duplicate_pods(model), *overcommitted_nodes(model))
                if line not in found
            )
    found += partially_bound_gangs(model)
    for job in model.jobs.values():
        name, status, phase = job["metadata"]["name"], job.get("status", {}), phase_of(job)
        if phase not in ("Completed", "Failed"):
            found.append(f"job {name} is {phase or 'without a phase'}, not finished")
        if status.get("retryCount", 0) != (retries or {}).get(name, 0):
            found.append(f"job {name} was retried {status.get('retryCount', 0)} times")
    return found
