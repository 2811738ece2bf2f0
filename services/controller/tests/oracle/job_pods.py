"""The incrementally updated values of a job's pods, compared with a computation over all pods."""

from stromboli.controller.core.jobs import job_pods, policy_events
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.store.pod_group_members import GroupMembers, member_state_of
from stromboli.controller.core.tasks import tasks
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import MOST_PODS, Job
from stromboli.testkit import builders


def check(cache: controller_cache.ControllerCache, item: controller_cache.ReconcileKey) -> None:
    """For a job's step. Raises AssertionError where both differ."""
    key, job = item.key, cache.job(item.key) if item.kind == "job" else None
    if job is None or not cache.is_ours(job):
        return
    kept, walked = job_pods.refresh(cache, job), job_pods.JobPods(cache, job)
    assert _shown(cache, kept, job) == _shown(cache, walked, job)
    unsettled = dict(kept.unsettled())
    for uid, pod in walked.unsettled():
        assert uid in unsettled or _is_published(cache, key, uid, pod is None), uid
    counted = GroupMembers()
    for pod in cache.objects(kinds.PODS):
        group = controller_cache.group_of(pod)
        if group is not None:
            standing = member_state_of(pod, is_terminating=cache.is_terminating(pod))
            counted.put(pod.metadata.key, group, standing)
    assert set(counted.groups()) == set(cache.group_members.groups())
    for group in counted.groups():
        assert counted.member_states(group) == cache.group_members.member_states(group)


def _shown(
    cache: controller_cache.ControllerCache, seen: job_pods.JobPods, job: Job
) -> list[object]:
    names = [task.name for task in tasks.specs(job)]
    return [
        seen.pods,
        seen.current,
        seen.counts,
        seen.kept,
        seen.to_delete,
        seen.first_to_delete(MOST_PODS),
        [seen.missing(name, MOST_PODS) for name in names],
        list(seen.policy_events(with_pending=True)),
        [(seen.succeeded_count(name), seen.restarts(name)) for name in names],
        list(policy_events.collect(cache, job, seen, None, builders.NOON)),
    ]


def _is_published(
    cache: controller_cache.ControllerCache, key: str, uid: str, is_gone: bool
) -> bool:
    sent = cache.published.jobs.get(key)
    return sent is not None and (uid in sent.tasks) != is_gone
