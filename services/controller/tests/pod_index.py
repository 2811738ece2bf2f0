"""What is kept of a job's pods change by change, held against a walk over all of them."""

from stromboli.controller.core.jobs import job_pods, policy_events
from stromboli.controller.core.store import cache
from stromboli.controller.core.store.pod_group_members import GroupMembers, standing_of
from stromboli.controller.core.tasks import tasks
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import MOST_PODS, Job
from stromboli.testkit import builders


def check(picture: cache.Cache, item: cache.ReconcileKey) -> None:
    """For a job's step. Raises AssertionError where both differ."""
    key, job = item.key, picture.job(item.key) if item.kind == "job" else None
    if job is None or not picture.is_ours(job):
        return
    kept, walked = job_pods.look(picture, job), job_pods.JobPods(picture, job)
    assert _shown(picture, kept, job) == _shown(picture, walked, job)
    unsettled = dict(kept.unsettled())
    for uid, pod in walked.unsettled():
        assert uid in unsettled or _is_published(picture, key, uid, pod is None), uid
    counted = GroupMembers()
    for pod in picture.objects(kinds.PODS):
        group = cache.group_of(pod)
        if group is not None:
            standing = standing_of(pod, is_going=picture.is_going(pod))
            counted.put(pod.metadata.key, group, standing)
    assert set(counted.groups()) == set(picture.group_members.groups())
    for group in counted.groups():
        assert counted.standings(group) == picture.group_members.standings(group)


def _shown(picture: cache.Cache, seen: job_pods.JobPods, job: Job) -> list[object]:
    names = [task.name for task in tasks.specs(job)]
    return [
        seen.pods,
        seen.current,
        seen.counts,
        seen.kept,
        seen.doomed,
        seen.first_doomed(MOST_PODS),
        [seen.missing(name, MOST_PODS) for name in names],
        list(seen.happenings(with_pending=True)),
        [(seen.has_succeeded(name), seen.restarts(name)) for name in names],
        list(policy_events.of(picture, job, seen, None, builders.NOON)),
    ]


def _is_published(picture: cache.Cache, key: str, uid: str, is_gone: bool) -> bool:
    told = picture.published.jobs.get(key)
    return told is not None and (uid in told.tasks) != is_gone
