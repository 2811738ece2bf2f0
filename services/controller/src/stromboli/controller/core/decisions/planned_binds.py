"""Planned binds: decides whether the controller creates a pod with its node, and builds the
request.

The scheduler placed the pod by its plan. Conditions that may have changed since are checked here,
immediately before the create. A refused pod is created without a node by the next reconcile of its
job.
"""

from stromboli.controller.core import commands, lifecycle, manifests
from stromboli.controller.core.decisions.decisions import EXECUTED, ExecutionResult
from stromboli.controller.core.pods import pods
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import tasks
from stromboli.shared import keys
from stromboli.shared.api import core, kinds, taints
from stromboli.shared.api.batch import Job
from stromboli.shared.messages import plans, scheduling

OFF = ExecutionResult("refused", "NotProtected", "pods are currently not created with their nodes")
NOT_ADMITTED = ExecutionResult("refused", "NotAdmitted", "the PodGroup was not admitted")


def job_of(
    cache: controller_cache.ControllerCache, decided: scheduling.StatementDecided
) -> Job | None:
    """The job of the statement, if it exists and may have pods."""
    group = cache.pod_group(decided.pod_group)
    key = None if group is None else controller_cache.job_of(group)
    job = None if key is None else cache.job(key)
    if job is None or job.metadata.uid != decided.job_uid or cache.is_terminating(job):
        return None
    return None if job.status.state.phase in lifecycle.STOPPING else job


def waits_for_admission(
    cache: controller_cache.ControllerCache, decided: scheduling.StatementDecided
) -> bool:
    """Whether the pods may be created only after the update that admits the PodGroup to its queue.

    They need not wait if the update cannot be rejected: the cache has this PodGroup, which is not
    being deleted, and no third-party webhook or policy intercepts the update. If the PodGroup is
    deleted between the check and the creates, its pods remain, as if it had been deleted after they
    were created.
    """
    known = cache.plans.admission
    return known is None or known.judges_admissions or not _has_pod_group(cache, decided)


def _has_pod_group(
    cache: controller_cache.ControllerCache, decided: scheduling.StatementDecided
) -> bool:
    group = cache.pod_group(decided.pod_group)
    return (
        group is not None
        and group.metadata.uid == decided.pod_group_uid
        and not cache.is_terminating(group)
    )


def refusal(
    cache: controller_cache.ControllerCache,
    job: Job | None,
    decided: scheduling.StatementDecided,
    bind: scheduling.Bind,
) -> ExecutionResult | None:
    """Why the pod may not be created with this node; None if it may. O(taints)."""
    if job is None:
        return ExecutionResult("refused", "JobGone", "the pod's job is deleted or is ending")
    if not _has_pod_group(cache, decided):
        return NOT_ADMITTED
    if not cache.plans.is_on:
        return OFF
    plan = cache.plans.of(decided.pod_group)
    if plan is None or plan.digest != bind.plan or bind.version != job.status.version:
        reason = "the pod was placed by a plan that has been replaced since"
        return ExecutionResult("refused", "PlanReplaced", reason)
    task = task_of(plan, bind)
    member = tasks.Members(job).of(bind.pod)
    if task is None or member is None or member.task.name != bind.task:
        return ExecutionResult("refused", "JobScaled", "the job does not require the pod")
    node = cache.get(kinds.NODES, bind.node)
    if node is None or cache.is_terminating(node) or node.metadata.uid != bind.node_uid:
        return ExecutionResult("refused", "NodeGone", f"node {bind.node} does not exist")
    reason = taints.rejection(node, task.template.spec.tolerations)
    return ExecutionResult("refused", "NodeChanged", reason) if reason else None


def task_of(plan: plans.PodsPlanned, bind: scheduling.Bind) -> plans.PlannedTask | None:
    """The bind's task in the plan; None if the plan lacks it."""
    return next((task for task in plan.tasks if task.task == bind.task), None)


def has_had_pod(cache: controller_cache.ControllerCache, job: Job, bind: scheduling.Bind) -> bool:
    """Whether a pod of this task and index was published before. Its resources may be in use by
    now, so the bind does not create the pod again."""
    return cache.published.attempts(job, bind.task, bind.index) > 0


def creation(
    cache: controller_cache.ControllerCache, job: Job, bind: scheduling.Bind, decision: str
) -> commands.Create:
    """The command that creates the pod with its node. Raises PluginFailedError."""
    member = tasks.Members(job).member(bind.task, bind.index)
    return pods.create(
        job,
        member,
        cache.plugins,
        data_root=cache.data_root,
        node=bind.node,
        annotations={**bind.annotations, keys.DECISION: decision},
    )


def found_result(
    pod: core.Pod | None, job_uid: str, bind: scheduling.Bind, decision: str
) -> ExecutionResult:
    """The result if the pod of this name is ``pod``: success if this decision created it for this
    job, else a refusal."""
    is_it = (
        pod is not None
        and manifests.is_owned(pod, job_uid)
        and manifests.version_of(pod) == bind.version
        and pod.metadata.annotation(keys.DECISION) == decision
        and pod.spec.node_name == bind.node
    )
    if is_it:
        return EXECUTED
    return ExecutionResult("refused", "NameTaken", f"pod {bind.pod} already exists")
