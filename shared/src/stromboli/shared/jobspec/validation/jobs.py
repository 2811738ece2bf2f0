"""Validation of jobs, created and updated.

All violations are reported at once, each with its path. Unlike Volcano, the length of pod names is
checked with the highest replica index that will exist, not with the task's position.
"""

import math
from collections.abc import Iterator, Mapping

import msgspec

from stromboli.shared import keys, network_topology
from stromboli.shared.api import batch
from stromboli.shared.api.scheduling import Queue
from stromboli.shared.formats import indexes
from stromboli.shared.formats.counts import counted
from stromboli.shared.jobspec import (
    debug_tools,
    dependency_cycles,
    job_dependencies,
    job_plugins,
    notifications,
    waiting_time,
)
from stromboli.shared.jobspec.validation import (
    data_sets,
    naming,
    pod_template,
    policies,
    topology,
)
from stromboli.shared.jobspec.validation.defaults import min_available
from stromboli.shared.jobspec.validation.queueing import permissions
from stromboli.shared.jobspec.validation.queueing import queues as queue_rules
from stromboli.shared.messages.admission import Violation

CHANGEABLE = (
    "minAvailable, replicas, priorityClassName, activeDeadlineSeconds, runningEstimate or "
    "array.cancelled"
)
"""The mutable fields of an existing job, for messages. The queue can change, too, while the job
waits."""
SUSPENDED = ("Aborting", "Aborted")
WAITS = ("", "Pending", *SUSPENDED)
"""Phases in which the queue of a job can change."""
PLACED = ("Running", "Unknown", "Completed")
"""Phases of a PodGroup with pods on nodes."""


def validate_create(
    job: batch.Job,
    queues: Mapping[str, Queue],
    plugins: job_plugins.Plugins,
    tiers: network_topology.Tiers | None = None,
    submitter: permissions.Submitter | None = None,
) -> Iterator[Violation]:
    """All violations of a new job with defaults. ``plugins``: the plugins that the controller runs;
    ``tiers``: the tiers of the network topology, None if unknown.
    """
    yield from validate_alone(job)
    yield from of_plugins(job, plugins)
    yield from queue_rules.validate_open(job.spec.queue, queues, job.metadata.namespace, submitter)
    yield from topology.unsatisfiable(job.spec.network_topology, "spec.networkTopology", tiers)
    for index, task in enumerate(job.spec.tasks):
        if task.partition_policy is not None:
            path = f"spec.tasks[{index}].partitionPolicy.networkTopology"
            yield from topology.unsatisfiable(task.partition_policy.network_topology, path, tiers)


def validate_alone(job: batch.Job) -> Iterator[Violation]:
    """All violations of a new job that do not depend on other objects."""
    spec = job.spec
    if not naming.is_label(job.metadata.name):
        yield Violation(
            path="metadata.name",
            reason=f"{job.metadata.name!r} is not a valid job name",
            expected=naming.LABEL_EXPECTED,
        )
    yield from _of_order(job)
    if not spec.tasks:
        yield Violation(path="spec.tasks", reason="no task", expected="at least one task")
    indexes_by_name: dict[str, int] = {}
    for index, task in enumerate(spec.tasks):
        yield from _of_task(job, task, f"spec.tasks[{index}]")
        first = indexes_by_name.setdefault(task.name, index)
        if first != index:
            yield Violation(
                path=f"spec.tasks[{index}].name",
                reason=f"{task.name!r} is also the name of spec.tasks[{first}]",
                expected="a unique name",
            )
    yield from _of_size(spec)
    replicas = sum(max(task.replicas, 0) for task in spec.tasks)
    if spec.min_available > replicas:
        yield Violation(
            path="spec.minAvailable",
            reason=f"{spec.min_available} is above the sum of all replicas",
            expected=f"at most {replicas}",
        )
    yield from policies.violations(spec.policies, "spec.policies")
    yield from _of_array(spec)
    yield from topology.violations(spec.network_topology, "spec.networkTopology")
    yield from _of_volumes(spec.volumes)
    yield from data_sets.violations(job)
    yield from _of_dependencies(spec.tasks)
    yield from debug_tools.violations(job)
    yield from notifications.violations(job)


def _of_size(spec: batch.JobSpec) -> Iterator[Violation]:
    pods = sum(task.replicas for task in spec.tasks)
    if pods > batch.MOST_PODS:
        yield Violation(
            path="spec.tasks",
            reason=f"{pods} pods in total",
            expected=f"at most {batch.MOST_PODS} pods in a job",
        )


AFTER_PATH = f"metadata.annotations[{keys.AFTER}]"


def _of_order(job: batch.Job) -> Iterator[Violation]:
    try:
        waits = job_dependencies.of(job)
    except ValueError as error:
        yield Violation(path=AFTER_PATH, reason=str(error), expected=job_dependencies.FORM)
        return
    if job.metadata.name in {wait.job for wait in waits}:
        yield Violation(
            path=AFTER_PATH, reason="the job waits for itself", expected="names of other jobs"
        )


def missing_dependency(name: str) -> Violation:
    """The violation of a dependency on a job that does not exist: the job would wait
    indefinitely."""
    return Violation(
        path=AFTER_PATH,
        reason=f"there is no job {name} in this namespace",
        expected="name jobs that exist or are submitted together with this one",
    )


def validate_update(
    job: batch.Job,
    before: batch.Job,
    queues: Mapping[str, Queue],
    submitter: permissions.Submitter | None = None,
    pod_group_phase: str = "",
) -> Iterator[Violation]:
    """All violations of a change of a job's spec. ``pod_group_phase``: the phase of the job's
    PodGroup, needed if the queue changes; empty if it has none."""
    spec = job.spec
    if len(spec.tasks) != len(before.spec.tasks):
        yield Violation(
            path="spec.tasks",
            reason=f"{counted(len(spec.tasks), 'task')} instead of {len(before.spec.tasks)}",
            expected="tasks cannot be added or removed; change replicas",
        )
    for index, task in enumerate(spec.tasks):
        yield from _of_counts(task, f"spec.tasks[{index}]")
    yield from _of_size(spec)
    replicas = sum(max(task.replicas, 0) for task in spec.tasks)
    if not 0 <= spec.min_available <= replicas:
        yield Violation(
            path="spec.minAvailable",
            reason=f"{spec.min_available} is not possible with "
            f"{counted(replicas, 'replica')} in total",
            expected=f"0 to {replicas}",
        )
    if job.metadata.annotation(keys.AFTER) != before.metadata.annotation(keys.AFTER):
        yield from _of_order(job)
    if job.metadata.annotation(keys.TOOLS) != before.metadata.annotation(keys.TOOLS):
        yield from debug_tools.violations(job)
    if job.metadata.annotation(keys.NOTIFY) != before.metadata.annotation(keys.NOTIFY):
        yield from notifications.violations(job)
    if spec.queue != before.spec.queue:
        yield from _of_queue_change(job, before, queues, submitter, pod_group_phase)
    if spec.array is not None and before.spec.array is not None:
        yield from _of_cancelled(spec.array)
    now, then = _fixed(spec), _fixed(before.spec)
    for field in msgspec.structs.fields(batch.JobSpec):
        if getattr(now, field.name) != getattr(then, field.name):
            yield Violation(
                path=f"spec.{field.encode_name}",
                reason="cannot be changed in a job that exists",
                expected=f"change {CHANGEABLE}, or submit a new job",
            )


def _of_queue_change(
    job: batch.Job,
    before: batch.Job,
    queues: Mapping[str, Queue],
    submitter: permissions.Submitter | None,
    pod_group_phase: str,
) -> Iterator[Violation]:
    """Violations of a change of the queue. A job with a pod on a node already uses quota, so its
    queue cannot change; other jobs must be allowed to leave the old queue and to join the new
    one."""
    status, name = before.status, job.metadata.name
    why = ""
    if status.state.phase not in WAITS:
        why = f"the job is {status.state.phase}"
    elif status.state.phase not in SUSPENDED and (
        pod_group_phase in PLACED or status.running + status.succeeded + status.failed
    ):
        why = "pods of the job are on nodes already"
    if why:
        yield Violation(
            path="spec.queue",
            reason=f"{why}, and the queue can change only while the job waits",
            expected=f"suspend it first (strom job suspend {name}), and resume it in the other "
            "queue; or submit a new job",
        )
        return
    namespace = job.metadata.namespace
    left = queues.get(before.spec.queue)
    if submitter is not None and left is not None:
        yield from permissions.violations(
            "spec.queue", "queue", left.metadata, namespace, submitter
        )
    yield from queue_rules.validate_open(job.spec.queue, queues, namespace, submitter)


def _of_task(job: batch.Job, task: batch.TaskSpec, path: str) -> Iterator[Violation]:
    if task.name and not naming.is_label(task.name):
        yield Violation(
            path=f"{path}.name",
            reason=f"{task.name!r} is not a valid task name",
            expected=naming.LABEL_EXPECTED,
        )
    if naming.is_label(job.metadata.name) and naming.is_label(
        task.name
    ):  # invalid names are reported by another rule
        longest = f"{job.metadata.name}-{task.name}-{_highest_index(job, task)}"
        if len(longest) > 63:
            yield Violation(
                path=f"{path}.name",
                reason=f"pods would be named {longest}, which has {len(longest)} characters",
                expected="shorter names of job or task: pod names have at most 63 characters",
            )
    yield from _of_counts(task, path)
    yield from policies.violations(task.policies, f"{path}.policies")
    yield from pod_template.of_metadata(task.template.metadata, f"{path}.template.metadata")
    yield from pod_template.violations(task.template.spec, f"{path}.template.spec")
    if task.topology_policy not in ("", "none") and not pod_template.has_whole_cpus(
        task.template.spec
    ):
        yield Violation(
            path=f"{path}.topologyPolicy",
            reason=f"{task.topology_policy} needs whole CPUs",
            expected="a whole, positive cpu request in every container",
        )
    if task.partition_policy is not None:
        yield from topology.violations(
            task.partition_policy.network_topology, f"{path}.partitionPolicy.networkTopology"
        )


def _of_counts(task: batch.TaskSpec, path: str) -> Iterator[Violation]:
    if task.replicas < 0:
        yield Violation(path=f"{path}.replicas", reason=f"{task.replicas}", expected="0 or more")
    elif not 0 <= min_available(task) <= task.replicas:
        yield Violation(
            path=f"{path}.minAvailable",
            reason=f"{min_available(task)} is not possible with "
            f"{counted(task.replicas, 'replica')}",
            expected=f"0 to {max(task.replicas, 0)}",
        )
    partition = task.partition_policy
    if partition is None:
        return
    at = f"{path}.partitionPolicy"
    wanted = {
        "totalPartitions": partition.total_partitions,
        "partitionSize": partition.partition_size,
    }
    for name, count in wanted.items():
        if count <= 0:
            yield Violation(path=f"{at}.{name}", reason=f"{count}", expected="1 or more")
    if min(wanted.values()) > 0 and task.replicas != math.prod(wanted.values()):
        yield Violation(
            path=f"{path}.replicas",
            reason=f"{counted(task.replicas, 'replica')} instead of "
            f"{counted(partition.total_partitions, 'partition')} of {partition.partition_size}",
            expected=f"{partition.total_partitions * partition.partition_size}",
        )
    needed = partition.min_partitions * partition.partition_size
    if partition.min_partitions > 0 and task.min_available not in (None, needed):
        yield Violation(
            path=f"{path}.minAvailable",
            reason=f"{task.min_available} is not "
            f"{counted(partition.min_partitions, 'whole partition')}",
            expected=f"{needed}, or leave it out",
        )


def of_plugins(job: batch.Job, carried: job_plugins.Plugins) -> Iterator[Violation]:
    """All violations of a job's plugins and their arguments. ``carried``: the plugins that the
    controller runs, by name."""
    for name, arguments in (job.spec.plugins or {}).items():
        path = f"spec.plugins.{name}"
        if name not in carried:
            yield Violation(
                path=path,
                reason=f"plugin {name!r} is unknown",
                expected=f"one of {', '.join(sorted(carried))}",
            )
            continue
        problem = carried[name].problem(arguments or ())
        if problem:
            yield Violation(path=path, reason=problem)
        job_problem = carried[name].job_problem(job, arguments or ())
        if job_problem:
            yield Violation(path=path, reason=job_problem)


def warnings(job: batch.Job, carried: job_plugins.Plugins) -> Iterator[str]:
    """Fields of a valid job that have no effect: the job is admitted with a warning to the
    submitter.
    """
    yield from waiting_time.warnings(job.metadata)
    for name, arguments in (job.spec.plugins or {}).items():
        message = carried[name].warning(arguments or ()) if name in carried else ""
        if message:
            yield f"spec.plugins.{name}: {message}"


def _of_volumes(volumes: tuple[batch.VolumeSpec, ...]) -> Iterator[Violation]:
    mount_paths: set[str] = set()
    for index, volume in enumerate(volumes):
        path = f"spec.volumes[{index}]"
        has_claim = bytes(volume.volume_claim) != b"null"
        if not volume.mount_path:
            yield Violation(path=f"{path}.mountPath", reason="no path", expected="a mount path")
        elif volume.mount_path in mount_paths:
            yield Violation(
                path=f"{path}.mountPath",
                reason=f"{volume.mount_path} is mounted already",
                expected="a path that no other mount uses",
            )
        mount_paths.add(volume.mount_path)
        if has_claim == bool(volume.volume_claim_name):
            which = "both {} and {}" if has_claim else "neither {} nor {}"
            yield Violation(
                path=path,
                reason=which.format("volumeClaim", "volumeClaimName"),
                expected="exactly one of the two",
            )
        if volume.volume_claim_name and not naming.is_subdomain(volume.volume_claim_name):
            yield Violation(
                path=f"{path}.volumeClaimName",
                reason=f"{volume.volume_claim_name!r} is not a valid claim name",
                expected=naming.SUBDOMAIN_EXPECTED,
            )


def _of_dependencies(tasks: tuple[batch.TaskSpec, ...]) -> Iterator[Violation]:
    needs = {task.name: task.depends_on.name if task.depends_on else () for task in tasks}
    names = {task.name for task in tasks}
    known = sorted(names)
    for index, task in enumerate(tasks):
        others = naming.join_limited(known, task.name)
        for wanted in needs.get(task.name, ()):
            if wanted not in names:
                yield Violation(
                    path=f"spec.tasks[{index}].dependsOn.name",
                    reason=f"there is no task {wanted!r}",
                    expected=f"one of {others}" if others else "none: the job has no other task",
                )
    waiting = dependency_cycles.members_of_cycles(needs)
    if waiting:
        yield Violation(
            path="spec.tasks",
            reason=f"tasks wait for each other: {naming.join_limited(sorted(waiting))}",
            expected="remove a dependency from the cycle",
        )


def _of_array(spec: batch.JobSpec) -> Iterator[Violation]:
    if spec.array is None:
        return
    problem = indexes.problem(spec.array.indexes)
    if problem:
        yield Violation(
            path="spec.array.indexes", reason=problem, expected=f"{indexes.FORM}, {indexes.BOUNDS}"
        )
    if len(spec.tasks) > 1:
        yield Violation(
            path="spec.tasks", reason=f"an array with {len(spec.tasks)} tasks", expected="one task"
        )
    if not problem:
        yield from _of_cancelled(spec.array)


def _of_cancelled(array: batch.ArraySpec) -> Iterator[Violation]:
    """The violation of the cancelled indexes. O(indexes)."""
    if not array.cancelled:
        return
    path = "spec.array.cancelled"
    if problem := indexes.problem(array.cancelled):
        yield Violation(path=path, reason=problem, expected=f"{indexes.FORM}, {indexes.BOUNDS}")
        return
    requested, cancelled = indexes.parse(array.indexes), indexes.parse(array.cancelled)
    if unknown := cancelled - requested:
        yield Violation(
            path=path,
            reason=f"the array has no index {unknown}",
            expected=f"indexes of {array.indexes}",
        )
    elif not requested - cancelled:
        yield Violation(
            path=path, reason="all indexes would be cancelled", expected="delete the job instead"
        )


def _highest_index(job: batch.Job, task: batch.TaskSpec) -> int:
    array = job.spec.array
    if array is None or indexes.problem(array.indexes):
        return max(task.replicas - 1, 0)
    return indexes.parse(array.indexes).runs[-1][1]


def _fixed(spec: batch.JobSpec) -> batch.JobSpec:
    """The spec without mutable fields."""
    tasks = tuple(
        msgspec.structs.replace(task, replicas=0, min_available=None) for task in spec.tasks
    )
    volumes = tuple(
        volume
        if bytes(volume.volume_claim) == b"null"
        else msgspec.structs.replace(volume, volume_claim_name="")
        for volume in spec.volumes
    )
    array = spec.array and msgspec.structs.replace(spec.array, cancelled="")
    return msgspec.structs.replace(
        spec,
        array=array,
        active_deadline_seconds=None,
        min_available=0,
        priority_class_name="",
        queue="",
        running_estimate="",
        tasks=tasks,
        volumes=volumes,
    )
