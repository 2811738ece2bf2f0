"""Reconciles one job: compares its pods and other objects with its spec and plans the changes.

Theory
------
*Level-triggered.* A plan is derived from objects as they are now, never from the change that put
the job into the work queue. The cache holds the newest known version of each object: from the
snapshot topics, or from the responses to our own writes, which are ahead of the topics. So
repeated, late and reordered changes lead to the same plan, and the next reconcile makes up for a
lost one.

*Status is the write-ahead log.* State that cannot be derived from pods (phase, version, retries,
restarted parts, delayed actions, results of an array) is in the job's status. A decision is a
status write on the resourceVersion that it was derived from, and no other command in the same stage
depends on it; its effects are planned by a later reconcile, once the write is in the cache. A crash
before the write loses the decision, and the next reconcile makes it again; a crash after the write
loses nothing.

*Effects are idempotent.* Names of pods and objects are derived from the job, deletions name a uid,
and patches test the values that they replace. A crash between any two commands, and a repetition of
any command, lead to the same result (``tests/test_crash_recovery.py``,
``tests/test_any_order.py``).

*Events come last and at least once.* An event for ``batch.events`` is due while the cluster differs
from what was published (``due_events``). It is published after the commands of its stage,
so that an event is never ahead of a fact. The exception is the end of a pod that a policy reacts
to: the policy's status write comes first, because the policy detects the end from the same
difference.

*Never behind the previous leader.* A new leader reads objects that are missing or older in its
cache than in published events before it decides anything about the job (``catch_up``).

*Never from a redacted spec.* The snapshot topics leave out literal values of environment variables.
If a plan needs them, the job is read from the API server instead (``store.complete_specs``).

*Liveness.* Every condition that a plan waits for adds the job to the work queue again: a change of
an object of the job or of a job that it names; after an error, the back-off; and for a point in
time, ``due``.

Invariants
----------
1. At most one pod exists for a task and index; one of an earlier job version is deleted first.
2. Phase and version change only by a transition of ``lifecycle.TABLE``.
3. The retry count never exceeds ``maxRetry``, apart from retries that cost none.
4. A pod is created only after the PodGroup of this version was admitted to its queue.
5. An unreadable object is unknown: it is never treated as absent, and never deleted.

Cost: O(changes since the last reconcile); O(pods) where the job itself changed (``job_pods``).
"""

from datetime import datetime

from stromboli.controller.core import commands, lifecycle, termination_causes
from stromboli.controller.core.jobs import (
    catch_up,
    due_events,
    job_commands,
    job_dependencies,
    job_events,
    job_pods,
    phase_changes,
    phase_effects,
    policies,
    policy_events,
)
from stromboli.controller.core.pods import debug_tool_pods, planned_pods
from stromboli.controller.core.store import complete_specs, controller_cache
from stromboli.controller.core.workloads import child_jobs
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Job
from stromboli.shared.formats import durations


def reconcile(cache: controller_cache.ControllerCache, key: str, now: datetime) -> commands.Plan:
    """The next commands for a job, in stages. Empty: nothing to do until a change or the time
    ``due``.

    Raises IllegalTransitionError for a phase that is not in the life-cycle table.
    """
    job = cache.job(key)
    # 1. An unreadable job is frozen until its next version.
    if job is None and cache.state(kinds.JOBS, key) is not None:
        return ()
    # 2. Catch up with the previous leader.
    reads = catch_up.reads_needed(cache, key)
    if reads:
        return (reads,)
    # 3. Publish the deletion of the previous job of this name. Withdraw outdated plans.
    uid = job.metadata.uid if job else ""
    deleted = due_events.due_departure(cache.published, key, uid, now)
    deleted = (*deleted, *planned_pods.outdated(cache, key, job))
    if job is None:
        return (deleted,)
    # 4. Leave jobs of other schedulers alone.
    if not cache.is_ours(job):
        return (deleted, tuple(job_events.no_scheduler(cache, job, now)))
    # 5. Publish what changed. The garbage collector removes what a deleted job owns.
    observed = job_pods.refresh(cache, job)
    events = job_events.due(cache, job, observed, now)
    if cache.is_terminating(job):
        return (deleted, events)
    # 6. Delete a finished job whose time to live is over.
    if _has_expired(cache, job, now):
        return (deleted, events, (_delete(job),))
    plan = (deleted, *_decide(cache, job, observed, events, now))
    if _needs_values(plan) and not cache.is_complete(job):
        return ((complete_specs.read(kinds.JOBS, job),),)
    # 10. Nothing is left to do for a finished job: keep no more of it than its objects.
    if not any(plan):
        job_pods.release_finished(cache, job, observed)
    return plan


def _decide(
    cache: controller_cache.ControllerCache,
    job: Job,
    observed: job_pods.JobPods,
    events: commands.Stage,
    now: datetime,
) -> commands.Plan:
    # 7. Execute the oldest user command, or reject it.
    item = controller_cache.ReconcileKey("job", job.metadata.key)
    user_commands = cache.user_commands_for(item)
    if user_commands and job.status.state.phase:
        requested = job_commands.carry_out(cache, job, user_commands[0], observed.counts, now)
        return (events, *requested)
    # 8. Write the status of a phase that has to change, and nothing else. The end of a pod that no
    #    restart caused is published later: the policy that reacts to it comes first.
    changes = phase_changes.advance(cache, job, observed, now)
    if changes:
        ended = policy_events.unobserved_ends(cache, job, observed)
        first = tuple(it for it in events if not due_events.concerns_policies(job, it, ended))
        return (first, *changes)
    # 9. Plan the commands that the phase requires.
    return phase_effects.effects(cache, job, observed, events, now)


def _needs_values(plan: commands.Plan) -> bool:
    """Whether the plan may depend on values that the topics leave out: it creates an object other
    than the PodGroup, or records an Event about what prevents that. A status write does not depend
    on these values, and its response contains them."""
    return any(
        isinstance(command, commands.RecordEvent | commands.PlanPods)
        or (isinstance(command, commands.Create) and command.kind is not kinds.POD_GROUPS)
        for stage in plan
        for command in stage
    )


def due(cache: controller_cache.ControllerCache, key: str, now: datetime) -> datetime | None:
    """The time at which to reconcile the job even if nothing changes: the end of its time to live,
    its deadline, the due time of a delayed policy, or the end of a back-off. Always after ``now``:
    the plan of ``now`` covers earlier times, and whatever it could not do yet waits for a change,
    such as the end of the last pod of a restart.
    """
    job = cache.job(key)
    if job is None or not cache.is_ours(job) or cache.is_terminating(job):
        return None
    # A job that waits for its owner or another job is reconciled when that object changes.
    times = [] if _is_awaited(cache, job) else [expires_at(job)]
    if job.status.state.phase in phase_changes.RULED:
        times += [_deadline(job), job.status.retry_at]
        pods = cache.pods_of(job) if policies.watches_pending(job) else ()
        times += [policies.due(cache, job, pods), debug_tool_pods.due(cache, job)]
    return min((at for at in times if at is not None and at > now), default=None)


def _deadline(job: Job) -> datetime | None:
    """The job's deadline; None while a delayed action on it is recorded, which has its own time."""
    name = termination_causes.DEADLINE_EXCEEDED
    is_delayed = any(it.event == name and not it.pod for it in job.status.delayed)
    return None if is_delayed else policy_events.deadline(job)


def expires_at(job: Job) -> datetime | None:
    """When a finished job expires, from its status; None for a job that has not finished or has no
    time to live."""
    ttl, state = job.spec.ttl_seconds_after_finished, job.status.state
    if ttl is None or state.phase not in lifecycle.FINISHED or state.last_transition_time is None:
        return None
    return durations.later(state.last_transition_time, ttl)


def _has_expired(cache: controller_cache.ControllerCache, job: Job, now: datetime) -> bool:
    """Whether the job's time to live is over and its owner has recorded its end. If it were deleted
    earlier, the owner would create it again."""
    at = expires_at(job)
    return at is not None and now >= at and not _is_awaited(cache, job)


def _is_awaited(cache: controller_cache.ControllerCache, job: Job) -> bool:
    if job.status.state.phase not in lifecycle.FINISHED:
        return False
    return child_jobs.is_awaited(cache, job) or job_dependencies.is_awaited(cache, job)


def _delete(job: Job) -> commands.Delete:
    return commands.Delete(
        kind=kinds.JOBS,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        propagation="Background",
    )
