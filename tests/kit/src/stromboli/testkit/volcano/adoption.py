"""Checks whether Volcano's controllers and scheduler could continue with the objects of a cluster.

The rules follow from its sources (``pkg/controllers/job``, ``pkg/scheduler/cache``): which pods
count as a job's, where the PodGroup is looked up, which phases exist, and what keeps an object from
being changed or deleted. Fields and annotations that Volcano does not know are allowed.
"""

from collections.abc import Iterable, Iterator

from stromboli.testkit.volcano import jobs
from stromboli.testkit.volcano.jobs import Document

JOB_PHASES = frozenset(
    [
        "Pending",
        "Running",
        "Restarting",
        "Completing",
        "Completed",
        "Aborting",
        "Aborted",
        "Terminating",
        "Terminated",
        "Failed",
    ]
)
GROUP_PHASES = frozenset({"Pending", "Inqueue", "Running", "Unknown", "Completed"})
QUEUE_STATES = frozenset({"Open", "Closed", "Closing", "Unknown"})
KNOWN_FINALIZERS = ("kubernetes.io/", "foregroundDeletion", "orphan")
POD_ANNOTATIONS = (
    "volcano.sh/task-index",
    "volcano.sh/task-spec",
    "volcano.sh/job-name",
    "volcano.sh/job-version",
    "scheduling.k8s.io/group-name",
)
POD_LABELS = ("volcano.sh/job-name", "volcano.sh/job-namespace", "volcano.sh/task-spec")
OBJECTS = {
    "svc": (("ConfigMap", "{}-svc"), ("Service", "{}")),
    "ssh": (("Secret", "{}-ssh"),),
}
ENDED = ("Succeeded", "Failed")


class Objects:
    """All objects of a cluster, by kind and key."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.all = {(it["kind"], _key(it)): it for it in documents}

    def of(self, kind: str) -> list[Document]:
        """All objects of a kind."""
        return [found for (its, _), found in self.all.items() if its == kind]

    def pods_of(self, job: Document) -> list[Document]:
        """The pods that the job controls."""
        uid = job["metadata"]["uid"]
        return [pod for pod in self.of("Pod") if _controller(pod) == uid]


def _key(document: Document) -> str:
    meta = document["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _controller(document: Document) -> str:
    owners = document["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def problems(objects: Objects) -> Iterator[str]:
    """Yield a line for each problem that would prevent Volcano from continuing."""
    for found in objects.all.values():
        for finalizer in found["metadata"].get("finalizers", ()):
            if not finalizer.startswith(KNOWN_FINALIZERS):
                yield f"{found['kind']} {_key(found)} has finalizer {finalizer}"
    for queue in objects.of("Queue"):
        if queue.get("status", {}).get("state", "") not in QUEUE_STATES:
            yield f"queue {_key(queue)} has state {queue.get('status')}"
    for group in objects.of("PodGroup"):
        if group.get("status", {}).get("phase", "") not in GROUP_PHASES:
            yield f"PodGroup {_key(group)} has status {group.get('status')}"
        for condition in group["status"].get("conditions", ()):
            if condition["type"] not in ("Scheduled", "Unschedulable"):
                yield f"PodGroup {_key(group)} has condition {condition}"
    for job in objects.of("Job"):
        yield from (f"job {_key(job)}: {line}" for line in _of_job(objects, job))


def _of_job(objects: Objects, job: Document) -> Iterator[str]:
    spec, status, phase = job["spec"], job.get("status", {}), _phase(job)
    if spec.get("schedulerName") != jobs.SCHEDULER:
        yield f"its scheduler is {spec.get('schedulerName')!r}"
    if phase not in JOB_PHASES:
        yield f"its phase is {phase!r}"
    if not all(it["status"] in JOB_PHASES for it in status.get("conditions", ())):
        yield f"its conditions are {status['conditions']}"
    if status.get("retryCount", 0) > spec["maxRetry"]:
        yield f"{status['retryCount']} retries of {spec['maxRetry']}"
    if phase in ("Pending", "Running"):
        yield from _of_group(objects, job)
        yield from _of_plugins(objects, job)
    for pod in objects.pods_of(job):
        yield from (f"pod {_key(pod)} {line}" for line in _of_pod(job, pod))


def _phase(job: Document) -> str:
    phase: str = job.get("status", {}).get("state", {}).get("phase", "")
    return phase


def _of_group(objects: Objects, job: Document) -> Iterator[str]:
    meta = job["metadata"]
    name = f"{meta['namespace']}/{meta['name']}-{meta['uid']}"
    group = objects.all.get(("PodGroup", name))
    if group is None:
        yield f"there is no PodGroup {name}"
    elif _controller(group) != meta["uid"]:
        yield f"PodGroup {name} has another owner"
    elif group["spec"].get("queue") != job["spec"]["queue"]:
        yield f"PodGroup {name} is in queue {group['spec'].get('queue')}"


def _of_plugins(objects: Objects, job: Document) -> Iterator[str]:
    """Yield problems of job plugins. Without its entry in the status, a plugin would create its
    objects again, and ssh would generate a new key."""
    meta, controlled = job["metadata"], job["status"].get("controlledResources", {})
    for plugin in job["spec"].get("plugins") or ():
        if controlled.get(f"plugin-{plugin}") != plugin:
            yield f"plugin {plugin} is not in controlledResources {sorted(controlled)}"
        for kind, form in OBJECTS.get(plugin, ()):
            key = f"{meta['namespace']}/{form.format(meta['name'])}"
            found = objects.all.get((kind, key))
            if found is None or _controller(found) != meta["uid"]:
                yield f"{kind} {key} of plugin {plugin} is missing"


def _of_pod(job: Document, pod: Document) -> Iterator[str]:
    meta = pod["metadata"]
    found, labels = meta.get("annotations", {}), meta.get("labels", {})
    missing = [name for name in POD_ANNOTATIONS if name not in found]
    missing += [name for name in POD_LABELS if name not in labels]
    if missing:
        yield f"lacks {', '.join(missing)}"
        return
    if meta["name"] != "-".join(
        (job["metadata"]["name"], found["volcano.sh/task-spec"], found["volcano.sh/task-index"])
    ):
        yield "has a name that Volcano does not look for"
    if (
        found["scheduling.k8s.io/group-name"]
        != f"{job['metadata']['name']}-{job['metadata']['uid']}"
    ):
        yield f"is in PodGroup {found['scheduling.k8s.io/group-name']}"
    if pod["spec"]["schedulerName"] != jobs.SCHEDULER:
        yield f"has scheduler {pod['spec']['schedulerName']}"
    if pod["spec"].get("schedulingGates"):
        yield f"has gates {pod['spec']['schedulingGates']}"
    is_alive = pod["status"].get("phase") not in ENDED and "deletionTimestamp" not in meta
    is_alive &= _phase(job) in ("Pending", "Running")  # in other phases Volcano deletes them
    version = job["status"].get("version", 0)
    if is_alive and int(found["volcano.sh/job-version"]) != version:
        yield f"is of version {found['volcano.sh/job-version']}, its job of {version}"
