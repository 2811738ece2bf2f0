"""The defaults that admission sets on jobs and queues."""

from stromboli.shared import keys
from stromboli.shared.api import batch, scheduling
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.validation import pod_template
from stromboli.shared.jobspec.validation.patch import Add, pointer

DEFAULT_MAX_RETRY = 3


def of_job(
    job: batch.Job,
    own_scheduler: str,
    traceparent: str,
    namespace_queue: str = "",
) -> tuple[Add, ...]:
    """The defaults of a new job. Existing values are never changed, except the queue ``default``,
    which ``namespace_queue`` (may be empty) replaces: whether a user or the schema wrote
    ``default`` cannot be determined.

    ``traceparent`` (may be empty) is recorded on the job, so that other services continue its
    trace.
    """
    spec = job.spec
    additions: list[Add] = []
    queue = namespace_queue if spec.queue in ("", "default") and namespace_queue else spec.queue
    if queue != spec.queue or not queue:
        additions.append(Add(path="/spec/queue", value=queue or "default"))
    if not spec.scheduler_name:
        additions.append(Add(path="/spec/schedulerName", value=own_scheduler))
    if spec.max_retry == 0:
        additions.append(Add(path="/spec/maxRetry", value=DEFAULT_MAX_RETRY))
    for index, task in enumerate(spec.tasks):
        additions += _of_task(task, index, is_array=spec.array is not None)
    if spec.min_available == 0:
        is_array = spec.array is not None
        total = sum(_default_min_available(task, is_array=is_array) for task in spec.tasks)
        if total >= 0:  # negative replicas are reported by another rule
            additions.append(Add(path="/spec/minAvailable", value=total))
    additions += _of_plugins(spec.plugins)
    notes = {}
    if traceparent and job.metadata.annotation(keys.TRACEPARENT) is None:
        notes[keys.TRACEPARENT] = traceparent
    return (*additions, *_annotations(job, notes))


def min_available(task: batch.TaskSpec) -> int:
    """The task's minAvailable; the default, if it is not set."""
    if task.min_available is not None:
        return task.min_available
    partition = task.partition_policy
    if partition is not None and partition.min_partitions > 0:
        return partition.min_partitions * partition.partition_size
    return task.replicas


def _default_min_available(task: batch.TaskSpec, *, is_array: bool) -> int:
    """The default minAvailable of a task: all replicas, but 1 for an array, whose indexes are
    independent of each other."""
    if is_array and task.min_available is None:
        return min(1, task.replicas)
    return min_available(task)


def _of_task(task: batch.TaskSpec, index: int, *, is_array: bool) -> list[Add]:
    at = ("spec", "tasks", index)
    additions = []
    if not task.name:
        additions.append(Add(path=pointer(*at, "name"), value=f"default{index}"))
    if task.min_available is None:
        least = _default_min_available(task, is_array=is_array)
        if least >= 0:
            additions.append(Add(path=pointer(*at, "minAvailable"), value=least))
    if task.max_retry == 0:
        additions.append(Add(path=pointer(*at, "maxRetry"), value=DEFAULT_MAX_RETRY))
    template = pod_template.read(task.template.spec)
    if template is not None and template.host_network and not template.dns_policy:
        path = pointer(*at, "template", "spec", "dnsPolicy")
        additions.append(Add(path=path, value="ClusterFirstWithHostNet"))
    return additions


def _of_plugins(plugins: dict[str, tuple[str, ...] | None] | None) -> list[Add]:
    if not plugins:
        return []
    needed = sorted(
        job_plugins.with_required_plugins(plugins).keys() - plugins.keys(), reverse=True
    )
    return [Add(path=f"/spec/plugins/{name}", value=[]) for name in needed]


def of_queue(
    queue: scheduling.Queue, members: frozenset[str], spec_members: frozenset[str]
) -> tuple[Add, ...]:
    """The defaults of a new queue. ``members`` and ``spec_members``: the fields present in the
    document and its spec, which distinguish an absent number from a zero.
    """
    additions: list[Add] = []
    if "spec" not in members:
        additions.append(Add(path="/spec", value={}))
    if queue.spec.reclaimable is None:
        additions.append(Add(path="/spec/reclaimable", value=True))
    if queue.spec.weight == 0 or "weight" not in spec_members:
        additions.append(Add(path="/spec/weight", value=queue.spec.weight or 1))
    hierarchy = queue.metadata.annotation(keys.HIERARCHY)
    weights = queue.metadata.annotation(keys.HIERARCHY_WEIGHTS)
    if hierarchy and weights and hierarchy.split("/")[0] != "root":
        at = ("metadata", "annotations")
        additions.append(Add(path=pointer(*at, keys.HIERARCHY), value=f"root/{hierarchy}"))
        additions.append(Add(path=pointer(*at, keys.HIERARCHY_WEIGHTS), value=f"1/{weights}"))
    return tuple(additions)


def _annotations(job: batch.Job, notes: dict[str, str]) -> list[Add]:
    if not notes:
        return []
    if job.metadata.annotations is None:
        return [Add(path="/metadata/annotations", value=notes)]
    return [
        Add(path=pointer("metadata", "annotations", key), value=value)
        for key, value in notes.items()
    ]
