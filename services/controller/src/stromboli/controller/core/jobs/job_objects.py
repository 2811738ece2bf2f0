"""The objects of a job other than its pods: the PodGroup, claims, and objects of plugins and
tools."""

from collections.abc import Iterator

from stromboli.controller.core import commands
from stromboli.controller.core.jobs import job_dependencies
from stromboli.controller.core.pod_groups import pod_groups
from stromboli.controller.core.pods import (
    debug_tool_pods,
    planned_pods,
    plugin_objects,
    pods,
    volumes,
)
from stromboli.controller.core.store import controller_cache
from stromboli.shared import keys
from stromboli.shared.api import kinds, scheduling
from stromboli.shared.api.batch import Job


def blockers(cache: controller_cache.ControllerCache, job: Job) -> Iterator[pods.Blocker]:
    """The reasons that keep the job Pending: in its spec, its plugins and its dependencies."""
    yield from _own_blockers(cache, job)
    yield from job_dependencies.unmet_conditions(cache, job)


def _own_blockers(cache: controller_cache.ControllerCache, job: Job) -> tuple[pods.Blocker, ...]:
    """The reasons in the job's spec and plugins, evaluated once for each cached object of the job:
    they took 40 % of a reconcile, and most reconciles follow changes of pods."""
    known = cache.blockers.get(job.metadata.owner_key)
    if known is None or known[0] is not job:
        known = job, tuple(pods.blockers(job, cache.plugins))
        cache.blockers[job.metadata.owner_key] = known
    return known[1]


def group_commands(cache: controller_cache.ControllerCache, job: Job) -> commands.Stage:
    """The commands that create the PodGroup, update it to the spec, or delete a PodGroup of an
    earlier job version."""
    state = cache.state(kinds.POD_GROUPS, pods.group_key(job))
    group = cache.pod_group(pods.group_key(job))
    if state is None:
        return _group_creation(cache, job)
    if group is None or cache.is_terminating(group):
        return ()
    if pod_groups.is_of_earlier_version(job, group):
        return delete_group(cache, job)
    return (*_promised_plan(cache, job, group), *pod_groups.adjust(cache, job, group))


def _group_creation(cache: controller_cache.ControllerCache, job: Job) -> commands.Stage:
    """Create the PodGroup and, at the same time, publish the job's plan of pods if it has one:
    sessions wait for the plan that the PodGroup announces. Both follow the objects that the pods
    need."""
    if planned_pods.is_wanted(cache, job):
        before, after = job.status.controlled_resources, controlled(cache, job)
        if debug_tool_pods.without(after) != debug_tool_pods.without(before):
            return ()
        request = planned_pods.request(cache, job)
        if request is not None:
            return (request, pod_groups.create(cache, job, plan_follows=True))
    return (pod_groups.create(cache, job),)


def _promised_plan(
    cache: controller_cache.ControllerCache, job: Job, group: scheduling.PodGroup
) -> commands.Stage:
    """Publish the plan that the PodGroup announces, if that failed when the PodGroup was created
    and the gang still waits."""
    is_promised = group.metadata.annotation(keys.PLAN_FOLLOWS) is not None
    if not is_promised or cache.is_enqueued(group) or not planned_pods.is_wanted(cache, job):
        return ()
    request = planned_pods.request(cache, job)
    return () if request is None else (request,)


def new(cache: controller_cache.ControllerCache, job: Job) -> commands.Plan:
    """The objects of a new job, in stages. Without a plan of pods, all objects are created
    concurrently. With a plan, the objects that the pods need come first, then plan and PodGroup, as
    in ``_group_creation``. The stages are executed by one reconcile: a request that fails ends it,
    and the PodGroup does not wait for the job's first status write.
    """
    creates = tuple(creations(cache, job))
    is_absent = cache.state(kinds.POD_GROUPS, pods.group_key(job)) is None
    is_planned = is_absent and planned_pods.is_wanted(cache, job)
    request = planned_pods.request(cache, job) if is_planned else None
    if request is None:
        stages: commands.Plan = ((*group_commands(cache, job), *creates),)
    else:
        stages = (creates, (request, pod_groups.create(cache, job, plan_follows=True)))
    return tuple(stage for stage in stages if stage)


def expects_planned_pods(cache: controller_cache.ControllerCache, job: Job) -> bool:
    """Whether the next pods of the job may be created with their nodes: its plan is published, and
    its gang waits for its queue, or a decision is creating its pods."""
    plan = cache.plans.of(pods.group_key(job))
    if (
        plan is None
        or not plan.tasks
        or plan.job_uid != job.metadata.uid
        or plan.version != job.status.version
    ):
        return False
    group = cache.pod_group(pods.group_key(job))
    is_waiting = group is None or not cache.is_enqueued(group)
    return is_waiting or bool(cache.plans.reserved_names(job.metadata.uid))


def delete_group(cache: controller_cache.ControllerCache, job: Job) -> commands.Stage:
    """Delete the PodGroup, unless it is gone or being deleted. A restart deletes only the PodGroup
    of an earlier job version."""
    group = cache.pod_group(pods.group_key(job))
    if group is None or cache.is_terminating(group):
        return ()
    is_restarting = job.status.state.phase == "Restarting"
    if is_restarting and not pod_groups.is_of_earlier_version(job, group):
        return ()
    return (
        commands.Delete(
            kind=kinds.POD_GROUPS,
            namespace=group.metadata.namespace,
            name=group.metadata.name,
            uid=group.metadata.uid,
        ),
    )


def controlled(cache: controller_cache.ControllerCache, job: Job) -> dict[str, str]:
    """The ``controlledResources`` of the status once all objects of ``creations`` exist."""
    others = debug_tool_pods.without(plugin_objects.controlled(job, cache.plugins))
    return others | volumes.controlled(job) | debug_tool_pods.controlled(job)


def creations(cache: controller_cache.ControllerCache, job: Job) -> Iterator[commands.Create]:
    """The commands that create the claims, the plugins' objects and the objects of debug tools."""
    yield from volumes.resources(job)
    yield from plugin_objects.creations(job, cache.plugins)
    yield from debug_tool_pods.creations(cache, job)
