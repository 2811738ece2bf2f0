"""Plans of jobs whose pods may be created with their nodes: which jobs have one, and its content.

While the PodGroup is created, the complete body of the first pod of each task is sent as a dry run
with a node. The responses are the plan: requests, tolerations, priority and all other fields after
defaulting, webhooks and policies. The rules are in docs/decisions/0044-pods-created-bound.md.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from stromboli.controller.core import commands, lifecycle, manifests
from stromboli.controller.core.pods import data_volumes, plugin_objects, pods
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import dependencies, tasks
from stromboli.shared import decoding
from stromboli.shared.api import core, kinds
from stromboli.shared.api.batch import Job, TaskSpec
from stromboli.shared.jobspec import gangs
from stromboli.shared.messages import base, plans

MOST_PODS = 1_000
"""Maximum number of pods of a job that gets a plan. A session places all of them, and one decision
lists them."""


def is_wanted(cache: controller_cache.ControllerCache, job: Job) -> bool:
    """Whether to publish a plan before the job's PodGroup is created. O(tasks)."""
    known = cache.plans.of(pods.group_key(job))
    if known is not None and known.version == job.status.version:
        return False
    uid, version = job.metadata.uid, job.status.version
    if not cache.plans.is_on or version > 0 or cache.plans.is_excluded(uid, version):
        return False
    return _is_plain(job) and not _has_quota(cache, job) and not cache.pods_of(job)


def exclusion_of(
    cache: controller_cache.ControllerCache, namespace: str, labels: Mapping[str, str]
) -> str:
    """The name of the webhook or policy that makes the controller create pods with these labels
    pending; empty if there is none. O(webhooks)."""
    known = cache.plans.admission
    if known is None:
        return ""
    arguments = cache.get(kinds.NAMESPACES, namespace)
    of_namespace = None if arguments is None else arguments.metadata.labels or {}
    exclusion = known.exclusion_of(of_namespace, labels)
    return "" if exclusion is None else exclusion.name


def _is_plain(job: Job) -> bool:
    """Whether the pods of each task differ only in their index, and wait only for a node."""
    specs = tasks.specs(job)
    if job.spec.array is not None or _has_volumes(job) or dependencies.has_any(job):
        return False
    if not 0 < sum(task.replicas for task in specs) <= MOST_PODS:
        return False
    return all(
        task.partition_policy is None and is_placeable(gangs.template_of(task)) for task in specs
    )


def _has_volumes(job: Job) -> bool:
    return bool(job.spec.volumes) or data_volumes.has_claims(job)


def is_placeable(spec: core.PodSpec) -> bool:
    """Whether a pod with this spec needs only a node: it has no claim, no scheduling gate, and no
    node yet."""
    return not (_claiming(spec) or spec.resource_claims or spec.scheduling_gates or spec.node_name)


def _claiming(spec: core.PodSpec) -> tuple[core.Volume, ...]:
    """The volumes that have a claim."""
    return tuple(it for it in spec.volumes if it.persistent_volume_claim or it.ephemeral)


def _has_quota(cache: controller_cache.ControllerCache, job: Job) -> bool:
    namespace = job.metadata.namespace
    unreadable = (key.partition("/")[0] for key in cache.unreadable(kinds.RESOURCE_QUOTAS))
    readable = (it.metadata.namespace for it in cache.objects(kinds.RESOURCE_QUOTAS))
    return namespace in unreadable or namespace in readable


def request(cache: controller_cache.ControllerCache, job: Job) -> commands.PlanPods | None:
    """The command that publishes the job's plan; None if its pods cannot be planned."""
    node = min((it.metadata.name for it in cache.objects(kinds.NODES)), default="")
    try:
        dry_runs = tuple(_dry_runs(cache, job, node))
    except plugin_objects.PluginFailedError:
        return None  # reported with the pods
    if not node or len(dry_runs) < sum(task.replicas > 0 for task in job.spec.tasks):
        return None
    if any(exclusion_of(cache, job.metadata.namespace, _labels_of(it.body)) for it in dry_runs):
        return None
    if cache.plans.admission is None or cache.plans.admission.changes_pods:
        dry_runs = tuple(msgspec.structs.replace(it, likeness="") for it in dry_runs)
    return commands.PlanPods(
        job=job.metadata.key,
        job_uid=job.metadata.uid,
        version=job.status.version,
        pod_group=pods.group_key(job),
        namespace=job.metadata.namespace,
        node=node,
        dry_runs=dry_runs,
    )


def _dry_runs(
    cache: controller_cache.ControllerCache, job: Job, node: str
) -> Iterator[commands.DryRun]:
    members = tasks.Members(job)
    for task in tasks.specs(job):
        if not task.replicas:
            continue
        first, last = (
            pods.create(
                job,
                members.member(task.name, index),
                cache.plugins,
                data_root=cache.data_root,
                node=node,
            )
            for index in (0, task.replicas - 1)
        )
        if _spec_of(first.body) != _spec_of(last.body):
            return  # a job plugin gives the pods different requirements
        yield commands.DryRun(
            task=task.name,
            prefix=f"{job.metadata.name}-{task.name}",
            replicas=task.replicas,
            body=first.body,
            likeness=_likeness(job, task, first.body),
        )


class _Body(msgspec.Struct, frozen=True):
    spec: msgspec.Raw


_BODY = decoding.decoder_of(_Body)


def _likeness(job: Job, task: TaskSpec, body: bytes) -> str:
    """A digest of what the answer to a dry run depends on: see ``dry_run_answers``. Our own labels
    and annotations, such as the names of job and pod, are left out."""
    template = task.template.metadata
    hasher = hashlib.sha256(job.metadata.namespace.encode())
    for part in (template.labels or {}, template.annotations or {}):
        hasher.update(b"\0" + manifests.encode(part))
    hasher.update(b"\0" + bytes(_BODY.decode(body).spec))
    return hasher.hexdigest()


def as_answered(run: commands.DryRun, spec: core.PodSpec, node: str) -> core.Pod:
    """The pod of a dry run, with the cached spec of the answer to an equal dry run."""
    requested = kinds.PODS.decode(run.body)
    return core.Pod(metadata=requested.metadata, spec=msgspec.structs.replace(spec, node_name=node))


def _spec_of(body: bytes) -> core.PodSpec:
    return kinds.PODS.decode(body).spec


def _labels_of(body: bytes) -> Mapping[str, str]:
    return kinds.PODS.decode(body).metadata.labels or {}


def plan(
    cache: controller_cache.ControllerCache,
    requested: commands.PlanPods,
    responses: Sequence[core.Pod],
) -> plans.PodsPlanned | None:
    """The plan from the responses to the dry runs; None if these pods must not be planned."""
    planned_tasks = []
    for run, pod in zip(requested.dry_runs, responses, strict=True):
        template = template_of(pod)
        if pod.spec.node_name != requested.node or not is_placeable(template.spec):
            return None
        if cache.plans.is_rejected(spec_digest(template)):
            return None
        planned_tasks.append(
            plans.PlannedTask(
                task=run.task, prefix=run.prefix, replicas=run.replicas, template=template
            )
        )
    return _plan_of(requested, tuple(planned_tasks))


def no_plan(requested: commands.PlanPods) -> plans.PodsPlanned:
    """The plan without tasks, which says that the pods are not planned."""
    return _plan_of(requested, ())


def _plan_of(
    requested: commands.PlanPods, content: tuple[plans.PlannedTask, ...]
) -> plans.PodsPlanned:
    return plans.PodsPlanned(
        pod_group=requested.pod_group,
        job=requested.job,
        job_uid=requested.job_uid,
        version=requested.version,
        digest=plans.digest_of(requested.job_uid, requested.version, content),
        tasks=content,
    )


def template_of(pod: core.Pod) -> core.Pod:
    """The part of the pod that all pods of a task share. Volumes without a claim are left out:
    the API server gives the volume of a service account's token a random name."""
    metadata = msgspec.structs.replace(
        pod.metadata, name="", uid="", resource_version="", generation=0, creation_timestamp=None
    )
    spec = msgspec.structs.replace(pod.spec, node_name="", volumes=_claiming(pod.spec))
    return core.Pod(metadata=metadata, spec=spec)


def spec_digest(template: core.Pod) -> str:
    """A digest of the namespace and the requirements of pods of this template."""
    content = template.metadata.namespace.encode() + b"/" + base.encode(template.spec)
    return hashlib.sha256(content).hexdigest()[:16]


def is_as_planned(pod: core.Pod, of: plans.PlannedTask) -> bool:
    """Whether a created pod has the requirements of its plan."""
    return template_of(pod).spec == of.template.spec


def outdated(
    cache: controller_cache.ControllerCache, key: str, job: Job | None
) -> Iterator[commands.WithdrawPlan]:
    """Withdraw plans that no session will use: the job is gone, is stopping or has another version,
    or its gang was admitted to its queue and no decision is creating its pods."""
    for known in cache.plans.of_job(key):
        is_current = job is not None and known.job_uid == job.metadata.uid
        if is_current and job is not None and not cache.is_terminating(job):
            group = cache.pod_group(known.pod_group)
            is_waiting = group is None or not cache.is_enqueued(group)
            is_waiting = is_waiting and job.status.state.phase not in lifecycle.STOPPING
            if known.version == job.status.version and is_waiting:
                continue
            if cache.plans.reserved_names(known.job_uid):
                continue
        yield commands.WithdrawPlan(
            pod_group=known.pod_group, job_uid=known.job_uid, version=known.version
        )
