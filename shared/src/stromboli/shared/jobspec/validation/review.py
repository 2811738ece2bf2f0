"""Validation of one object for every entry point: defaults, then violations.

Objects of other schedulers pass unchanged. Kinds without rules here are validated by their schema
only, if they belong to one of our groups.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from stromboli.shared import decoding, keys, network_topology
from stromboli.shared.api import batch, core, flow, kinds, meta, reservation, scheduling
from stromboli.shared.api import topology as topology_api
from stromboli.shared.api.kinds import Kind
from stromboli.shared.jobspec import crds, job_dependencies, job_plugins
from stromboli.shared.jobspec.crds import pod_schema
from stromboli.shared.jobspec.validation import (
    bounds,
    cron_jobs,
    defaults,
    flows,
    jobs,
    naming,
    patch,
    pod_groups,
    pods,
    topology,
    user_commands,
)
from stromboli.shared.jobspec.validation.patch import Add, Document
from stromboli.shared.jobspec.validation.queueing import permissions, queues, reservations
from stromboli.shared.messages.admission import Violation

Operation = Literal["CREATE", "UPDATE", "DELETE"]
TOO_DEEP = bounds.TOO_DEEP
MAX_VIOLATIONS = 1_001
"""Number of violations after which a review stops: one more than a response lists."""
TEMPLATE_KINDS = (kinds.JOBS, kinds.JOB_TEMPLATES, kinds.CRON_JOBS, kinds.JOB_FLOWS)
"""Kinds with pod templates."""
OUR_GROUPS = frozenset(document["spec"]["group"] for document in crds.documents())


class AdmissionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's settings for admission.

    ``scheduler_names``: the schedulers whose jobs are ours; the first one is the default.
    ``plugins``: the job plugins that the controller runs. ``max_queue_depth``: levels of queues
    below the root. ``allow_deleting_queues_with_pods``: whether a queue may be deleted while pods
    run in it. ``groups``: the resource groups of pods.
    """

    scheduler_names: tuple[str, ...]
    plugins: job_plugins.Plugins
    max_queue_depth: int
    allow_deleting_queues_with_pods: bool = True
    groups: pods.ResourceGroups = pods.ResourceGroups()


class ClusterContext(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the cluster that rules need: all queues by name, the tiers of the network
    topology (None: unknown), the object's namespace, and ``claimed``: the scheduler names under
    which another system acts.

    ``reservations``: all reservations by name, and ``nodes``: all nodes, if the object is about
    reservations. ``priority_classes``: all priority classes by name. ``submitter``: the
    user whose permissions are checked; None: they are not checked. ``requester``: the user of the
    request; None: one of our services, which writes on behalf of others.
    ``absent_priority_classes``: names that do not exist in the API server. ``pod_group_phase``: the
    phase of the PodGroup of a job whose queue changes.
    """

    queues: Mapping[str, scheduling.Queue] = {}
    tiers: network_topology.Tiers | None = None
    namespace: core.Namespace | None = None
    claimed: frozenset[str] = frozenset()
    priority_classes: Mapping[str, core.PriorityClass] = {}
    submitter: permissions.Submitter | None = None
    requester: permissions.Submitter | None = None
    absent_priority_classes: frozenset[str] = frozenset()
    reservations: Mapping[str, reservation.AdvanceReservation] = {}
    nodes: tuple[core.Node, ...] = ()
    pod_group_phase: str = ""

    @property
    def namespace_queue(self) -> str:
        """The default queue of the namespace; empty if it has none."""
        queue_name = self.namespace and self.namespace.metadata.annotation(keys.NAMESPACE_QUEUE)
        return queue_name or ""


class _Template(meta.Part, frozen=True, kw_only=True):
    """The part of a CronJob that names the scheduler of its jobs."""

    scheduler_name: str = ""


_TEMPLATE = decoding.decoder_of(_Template | None)


def update_patch(
    kind: Kind[Any],
    document: Document,
    before: Document,
    policy: AdmissionPolicy,
    known: ClusterContext,
) -> tuple[Add, ...]:
    """Defaults for an update of a PodGroup; none for other kinds, and none if either state cannot
    be decoded."""
    if kind != kinds.POD_GROUPS or bounds.violations(document):
        return ()
    try:
        read, old = (kinds.POD_GROUPS.decode(msgspec.json.encode(it)) for it in (document, before))
    except (msgspec.DecodeError, ValueError):
        return ()
    if not is_ours(read, policy, known):
        return ()
    return pod_groups.update_patch(read, old, document, known.namespace_queue)


def default_patch(
    kind: Kind[Any],
    document: Document,
    policy: AdmissionPolicy,
    traceparent: str = "",
    known: ClusterContext = ClusterContext(),  # noqa: B008 - frozen
) -> tuple[Add, ...]:
    """Defaults for a new object; none if it cannot be decoded (``violations`` then gives the
    reason).

    ``traceparent`` (may be empty) is recorded on a job, so that other services continue its trace.
    """
    if bounds.violations(document):
        return ()
    if not all(isinstance(document.get(part), dict | None) for part in ("metadata", "spec")):
        return ()
    try:
        if kind == kinds.PODS:
            namespace = known.namespace.metadata.name if known.namespace else ""
            return pods.default_patch(document, namespace, policy.groups)
        read = kind.decode(msgspec.json.encode(document))
    except (msgspec.DecodeError, ValueError):
        return ()
    if not is_ours(read, policy, known):
        return ()
    match read:
        case batch.Job() if "spec" in document:
            scheduler = policy.scheduler_names[0]
            return defaults.of_job(read, scheduler, traceparent, known.namespace_queue)
        case scheduling.Queue():
            spec = document.get("spec")
            return defaults.of_queue(read, frozenset(document), frozenset(spec or ()))
        case scheduling.PodGroup():
            return pod_groups.default_patch(read, document, known.namespace_queue)
    return ()


def submitter_patch(
    kind: Kind[Any],
    document: Document,
    before: Document | None,
    policy: AdmissionPolicy,
    known: ClusterContext,
) -> tuple[Add, ...]:
    """The patch that records the submitter of one of our objects, see ``permissions``. ``before``:
    the stored object of an update. Empty for our own services, and for objects that cannot be
    decoded."""
    if (
        known.requester is None
        or kind not in permissions.SUBMITTER_KINDS
        or patch.is_too_deep(document)
    ):
        return ()
    try:
        read = kind.decode(msgspec.json.encode(document))
    except (msgspec.DecodeError, ValueError):
        return ()
    if not is_ours(read, policy, known):
        return ()
    return permissions.submitter_patch(kind, document, before, known.requester)


def violations(
    kind: Kind[Any],
    operation: Operation,
    document: Document,
    before: Document | None,
    known: ClusterContext,
    policy: AdmissionPolicy,
) -> tuple[Violation, ...]:
    """All violations, up to about ``MAX_VIOLATIONS``. ``document`` is the object with defaults, or
    the one to be deleted; ``before`` is the stored object of an update. For an object that exceeds
    a size limit, only that violation is returned.

    For an update that does not change the spec, violations that the stored object already has are
    left out. Otherwise the finalizers of an object that was stored before a rule existed could
    never be removed.
    """
    new_violations = _violations(kind, operation, document, before, known, policy)
    if not new_violations or before is None or document.get("spec") != before.get("spec"):
        return new_violations
    stored = _violations(kind, operation, before, before, known, policy)
    return tuple(violation for violation in new_violations if violation not in stored)


def _violations(
    kind: Kind[Any],
    operation: Operation,
    document: Document,
    before: Document | None,
    known: ClusterContext,
    policy: AdmissionPolicy,
) -> tuple[Violation, ...]:
    if operation == "DELETE":
        if kind != kinds.QUEUES or not _acts(policy, known):
            return ()
        name = patch.text_of(document, "name")
        return tuple(
            queues.validate_delete(
                name, known.queues, with_pods=policy.allow_deleting_queues_with_pods
            )
        )
    large = bounds.violations(document)
    if TOO_DEEP in large:
        return large
    schema_violations: tuple[Violation, ...] = ()
    if kind.group in OUR_GROUPS and not large:
        schema_violations = crds.violations(kind.group, kind.kind, document, MAX_VIOLATIONS)
    try:
        read = kind.decode(msgspec.json.encode(document))
        old = None if before is None else kind.decode(msgspec.json.encode(before))
        if not any(is_ours(it, policy, known) for it in (read, old) if it is not None):
            return ()
        if large:
            return large
        ours = (
            *itertools.islice(_of_ours(read, old, document, known, policy), MAX_VIOLATIONS),
            *permissions.forged_submitter(kind, read, old, known.requester),
            *_not_permitted(read, old, known),
            *_without_priority_class(read, old, known),
        )
    except (msgspec.DecodeError, ValueError) as error:
        return large or schema_violations or (_unreadable(error),)
    reported_paths = {violation.path for violation in schema_violations}
    return (
        *schema_violations,
        *(violation for violation in ours if violation.path not in reported_paths),
    )


def unknown_fields(
    kind: Kind[Any],
    document: Document,
    before: Document | None,
    policy: AdmissionPolicy,
    known: ClusterContext,
) -> tuple[Violation, ...]:
    """Fields of pod templates that Kubernetes does not have, up to ``MAX_VIOLATIONS``. Fields that
    ``before``, the stored object, has at the same path are left out, and so are objects of other
    schedulers."""
    if kind not in TEMPLATE_KINDS or bounds.violations(document):
        return ()
    try:
        if not is_ours(kind.decode(msgspec.json.encode(document)), policy, known):
            return ()
    except (msgspec.DecodeError, ValueError):
        return ()  # ``violations`` reports why it cannot be decoded
    stored = {each.path for each in pod_schema.unknown_fields(before or {})}
    new_violations = (
        each for each in pod_schema.unknown_fields(document) if each.path not in stored
    )
    return tuple(itertools.islice(new_violations, MAX_VIOLATIONS))


def dependencies(
    document: Document, policy: AdmissionPolicy, known: ClusterContext
) -> tuple[str, ...]:
    """The names of the jobs that one of our jobs depends on; empty if it cannot be decoded."""
    if patch.is_too_deep(document):
        return ()
    try:
        job = kinds.JOBS.decode(msgspec.json.encode(document))
    except (msgspec.DecodeError, ValueError):
        return ()
    if not is_ours(job, policy, known):
        return ()
    return tuple(name for name in job_dependencies.job_names(job) if name != job.metadata.name)


def priority_classes(kind: Kind[Any], document: Document) -> frozenset[str]:
    """The priority classes that an object names; empty if it cannot be decoded."""
    if kind not in (kinds.JOBS, kinds.POD_GROUPS, kinds.CRON_JOBS) or patch.is_too_deep(document):
        return frozenset()
    try:
        read = kind.decode(msgspec.json.encode(document))
    except (msgspec.DecodeError, ValueError):
        return frozenset()
    workload = _job_of(read) if isinstance(read, flow.CronJob) else read
    return frozenset(permissions.restricted_references(workload).priority_classes.values())


def _of_ours(
    read: meta.Object,
    old: Any,
    document: Document,
    known: ClusterContext,
    policy: AdmissionPolicy,
) -> Iterator[Violation]:
    """The violations of our own rules beyond the schema, by kind."""
    match read:
        case batch.Job() if old:
            yield from jobs.validate_update(
                read, old, known.queues, known.submitter, known.pod_group_phase
            )
            if read.spec.queue != old.spec.queue:
                yield from reservations.of_job(
                    read.metadata, read.spec.queue, known.reservations, known.submitter
                )
        case batch.Job():
            yield from jobs.validate_create(
                read, known.queues, policy.plugins, known.tiers, known.submitter
            )
            yield from reservations.of_job(
                read.metadata, read.spec.queue, known.reservations, known.submitter
            )
        case reservation.AdvanceReservation() if old is None or old.spec != read.spec:
            yield from reservations.violations(read, known.reservations, known.nodes)
        case scheduling.Queue():
            others = {name: q for name, q in known.queues.items() if name != read.metadata.name}
            if old:
                yield from queues.validate_update(read, old, others, policy.max_queue_depth)
            else:
                yield from queues.validate_create(read, others, policy.max_queue_depth)
        case scheduling.PodGroup() if not old:
            yield from pod_groups.validate_create(read, document, known.queues, known.tiers)
        case flow.JobFlow():
            yield from flows.violations(read)
        case flow.CronJob():
            yield from cron_jobs.violations(read)
            if old is None or _template_of(old) != _template_of(read):
                yield from _of_template(read, policy, known)
        case topology_api.HyperNode():
            yield from topology.of_hyper_node(read)
        case batch.Command() if not old:
            yield from user_commands.violations(read, known.queues)
        case core.Pod() if not old:
            ours = [name for name in policy.scheduler_names if name not in known.claimed]
            yield from pods.violations(document, ours)


def _not_permitted(
    read: meta.Object, old: meta.Object | None, known: ClusterContext
) -> Iterator[Violation]:
    """Violations for queues and priority classes that the submitter may not use. Other rules report
    those that do not exist.
    """
    if known.submitter is None:
        return
    used, prefix = permissions.restricted_references(read), ""
    before = permissions.restricted_references(old) if old else permissions.RestrictedReferences()
    if isinstance(read, flow.CronJob):
        prefix = "spec.jobTemplate."
        used = permissions.restricted_references(_job_of(read))
        before = (
            permissions.restricted_references(_job_of(old))
            if isinstance(old, flow.CronJob)
            else before
        )
    namespace = read.metadata.namespace
    for word, named, there in (
        ("queue", used.beyond(before).queues, known.queues),
        ("priority class", used.beyond(before).priority_classes, known.priority_classes),
    ):
        for path, name in named.items():
            if (target := there.get(name)) is not None:
                yield from permissions.violations(
                    prefix + path, word, target.metadata, namespace, known.submitter
                )


def _without_priority_class(
    read: meta.Object, old: meta.Object | None, known: ClusterContext
) -> Iterator[Violation]:
    """Violations for priority classes that a job or CronJob names and that do not exist, since its
    pods could never be created. A class that the stored object already names may be deleted.
    PodGroups are not checked: the controller may write the PodGroup of a job that was admitted
    earlier.
    """
    if not isinstance(read, batch.Job | flow.CronJob):
        return
    is_cron = isinstance(read, flow.CronJob)
    used, before = _references(read), permissions.RestrictedReferences()
    if isinstance(old, batch.Job | flow.CronJob):
        before = _references(old)
    classes = [it.metadata for it in known.priority_classes.values()]
    usable = permissions.usable(classes, read.metadata.namespace, known.submitter)
    create = "strom apply -f FILE with a PriorityClass"
    for path, name in used.beyond(before).priority_classes.items():
        if name in known.absent_priority_classes:
            yield Violation(
                path=f"spec.jobTemplate.{path}" if is_cron else path,
                reason=f"priority class {name!r} does not exist",
                expected=naming.alternatives(name, usable, "Priority classes", create),
            )


def _references(read: batch.Job | flow.CronJob) -> permissions.RestrictedReferences:
    return permissions.restricted_references(
        _job_of(read) if isinstance(read, flow.CronJob) else read
    )


def _job_of(cron: flow.CronJob) -> meta.Object:
    """A job of a CronJob; an empty object if the template is not a job, which other rules
    report."""
    try:
        job: meta.Object = kinds.JOBS.decode(msgspec.json.encode(cron_jobs.job_of(cron)))
    except (msgspec.DecodeError, ValueError):
        return meta.Object()
    return job


def _template_of(cron: flow.CronJob) -> tuple[meta.ObjectMeta, Any]:
    template = cron.spec.job_template
    return template.metadata, msgspec.json.decode(template.spec)


def _of_template(
    cron: flow.CronJob, policy: AdmissionPolicy, known: ClusterContext
) -> Iterator[Violation]:
    """The violations of a CronJob's jobs that do not depend on the cluster."""
    document = cron_jobs.job_of(cron)
    document = patch.applied(document, default_patch(kinds.JOBS, document, policy, known=known))
    try:
        job = kinds.JOBS.decode(msgspec.json.encode(document))
        job_violations = (*jobs.validate_alone(job), *jobs.of_plugins(job, policy.plugins))
    except (msgspec.DecodeError, ValueError) as error:
        job_violations = (_unreadable(error),)
    for violation in job_violations:
        if violation.path != "metadata.name":
            path = f"spec.jobTemplate.{violation.path}"
            yield msgspec.structs.replace(violation, path=path)
        else:
            yield violation


def _unreadable(error: Exception) -> Violation:
    """The violation for a decoder's error, with its path in our notation."""
    reason, _, where = str(error).partition(" - at `$")
    return Violation(path=where.rstrip("`").lstrip("."), reason=reason)


def is_ours(obj: meta.Object, policy: AdmissionPolicy, known: ClusterContext) -> bool:
    """Whether the object is ours. A job or CronJob without a scheduler name is ours only while no
    other system claims one of our names. The same holds for an object that cannot name a scheduler,
    such as a queue."""
    match obj:
        case batch.Job():
            name = obj.spec.scheduler_name
        case flow.CronJob():
            name = _scheduler_of(obj)
        case core.Pod():
            return True  # pods of all schedulers are received; the rules check the name
        case reservation.AdvanceReservation():
            return True  # no other system has this kind
        case _:
            return _acts(policy, known)
    if not name:
        return not known.claimed
    return name in policy.scheduler_names and name not in known.claimed


def _acts(policy: AdmissionPolicy, known: ClusterContext) -> bool:
    return known.claimed.isdisjoint(policy.scheduler_names)


def _scheduler_of(cron: flow.CronJob) -> str:
    """The scheduler of a CronJob's jobs; empty if the template cannot be decoded, which other rules
    report."""
    try:
        template = decoding.decode(_TEMPLATE, cron.spec.job_template.spec)
    except msgspec.DecodeError:
        return ""
    return template.scheduler_name if template else ""
