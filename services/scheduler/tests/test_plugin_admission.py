"""Which jobs are enqueued: overcommit, sla and resourcequota."""

from datetime import timedelta

import msgspec
import pytest

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import queue_usage
from stromboli.scheduler.core.queue_quota import deadlines
from stromboli.shared.api import core, meta
from stromboli.testkit import builders

NODE = builders.make_node("n1", cpu="10")
QUEUE = sessions.queue("a")


def waiting(name: str, cpu: str, **annotations: str) -> meta.Object:
    """A Pending PodGroup with minimum resources."""
    notes = {key.replace("_", "-"): value for key, value in annotations.items()}
    return builders.make_pod_group(
        name, queue="a", phase="Pending", min_resources={"cpu": cpu}, annotations=notes
    )


def enters(ssn: session.Session, name: str) -> bool:
    """Call the plugin, and record the job if it may enter, as the action does."""
    job = ssn.jobs[f"default/{name}"]
    if not ssn.job_enqueueable(job):
        return False
    ssn.job_enqueued(job)
    return True


@pytest.mark.parametrize(
    ("arguments", "cpu", "expected"),
    [
        ({}, "12", True),
        ({}, "12001m", False),
        ({"overcommit-factor": 1.5}, "15", True),
        ({"overcommit-factor": 0.5}, "12", True),
        ({"overcommit-factor": "2"}, "13", False),
    ],
    ids=["a fifth more", "and no more", "as configured", "never less", "a text is no number"],
)
def test_jobs_enter_up_to_a_little_more_than_the_cluster(
    arguments: dict[str, object], cpu: str, *, expected: bool
) -> None:
    tier = [sessions.plugin("overcommit", arguments)]
    ssn = sessions.opened(NODE, QUEUE, waiting("g1", cpu), tier=tier)
    assert enters(ssn, "g1") is expected


def test_what_entered_and_what_runs_leaves_less_for_the_next() -> None:
    """Twelve, less four that run and five that entered: three."""
    ssn = sessions.opened(
        NODE,
        QUEUE,
        *sessions.gang("g1", "a", 4, node="n1"),
        waiting("g2", "5"),
        waiting("g3", "4"),
        waiting("g4", "3"),
        tier=[sessions.plugin("overcommit")],
    )
    assert [enters(ssn, name) for name in ("g2", "g3", "g4")] == [True, False, True]
    assert ssn.events == {"default/g3": ["resource in cluster is overused: overused cpu"]}


@pytest.mark.parametrize(
    ("gates", "expected"),
    [((), False), (("example.com/wait",), True), ((queue_usage.QUEUE_ALLOCATION_GATE,), False)],
    ids=["not gated", "waits for others", "waits for its queue only"],
)
def test_what_is_gated_by_others_is_not_yet_to_come(
    gates: tuple[str, ...], *, expected: bool
) -> None:
    """A job inside needs eight of twelve, five of them for a pod that may be gated."""
    ssn = sessions.opened(
        NODE,
        QUEUE,
        builders.make_pod_group("g1", 2, queue="a", min_resources={"cpu": "8"}),
        builders.make_pod("g1-0", "g1", cpu="3"),
        builders.make_pod("g1-1", "g1", cpu="5", gates=gates),
        waiting("g2", "9"),
        tier=[sessions.plugin("overcommit")],
    )
    assert enters(ssn, "g2") is expected


def test_a_job_without_minimum_resources_enters_a_full_cluster_and_reserves_nothing() -> None:
    group = builders.make_pod_group("g1", queue="a", phase="Pending")
    objects = [NODE, QUEUE, waiting("full", "12"), group, waiting("g2", "1m")]
    ssn = sessions.opened(*objects, tier=[sessions.plugin("overcommit")])
    assert [enters(ssn, name) for name in ("full", "g1", "g2")] == [True, True, False]


def test_a_job_past_its_waiting_time_enters_against_later_tiers_only() -> None:
    sla, full = sessions.plugin("sla", {"sla-waiting-time": "1h"}), sessions.plugin("overcommit")
    late = sessions.given([NODE, QUEUE, waiting("g1", "99")], builders.NOON + timedelta(hours=1))
    for tiers, expected in (([[sla], [full]], True), ([[sla, full]], False)):
        ssn = sessions.open_given(sessions.configured(*tiers), late)
        assert enters(ssn, "g1") is expected


def test_jobs_are_served_in_the_order_in_which_their_patience_ends() -> None:
    """A job's own limit overrides the plugin's; a job without a limit comes last."""
    ssn = sessions.opened(
        QUEUE,
        waiting("g1", "1"),
        waiting("g2", "1", sla_waiting_time="2h"),
        waiting("g3", "1", sla_waiting_time="30m"),
        tier=[sessions.plugin("sla")],
    )
    assert [job.name for job in ssn.ordered_jobs(ssn.jobs.values())] == ["g3", "g2", "g1"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("soon", "'soon' is not a duration"),
        ("0s", "'0s' is not above zero"),
        ("-1h", "'-1h' is not above zero"),
    ],
)
def test_an_invalid_waiting_time_is_reported_and_ignored(text: str, problem: str) -> None:
    sla = sessions.plugin("sla", {"sla-waiting-time": text})
    jobs = [waiting("g1", "99", sla_waiting_time=text), waiting("g2", "99")]
    ssn = sessions.open_given(
        sessions.configured([sla], [sessions.plugin("overcommit")]), sessions.given([QUEUE, *jobs])
    )
    assert not enters(ssn, "g1")
    assert not enters(ssn, "g2")
    (of_plugin, of_job) = ssn.complaints
    assert of_plugin.startswith(f"plugin sla: arguments.sla-waiting-time: {problem}")
    assert of_job.startswith(f"PodGroup default/g1: annotations.sla-waiting-time: {problem}")


def test_jobs_whose_waiting_times_end_together_are_left_to_other_plugins() -> None:
    ssn = sessions.opened(
        QUEUE,
        waiting("g1", "1", sla_waiting_time="30m"),
        waiting("g2", "1", sla_waiting_time="30m"),
        tier=[sessions.plugin("sla")],
    )
    left, right = ssn.jobs["default/g1"], ssn.jobs["default/g2"]
    read = deadlines.Deadlines(ssn)
    assert (read.compare(left, right), read.compare(right, left)) == (0, 0)


def test_other_plugins_use_the_waiting_time_of_the_plugin_sla() -> None:
    """``queue-policy`` and ``reservation``. Without ``sla`` only annotations count."""
    sla = sessions.plugin("sla", {"sla-waiting-time": "1h"})
    objects = [QUEUE, waiting("g1", "1"), waiting("g2", "1", sla_waiting_time="5m")]
    for tiers, default in (
        ([[sessions.plugin("priority")], [sessions.plugin("gang"), sla]], timedelta(hours=1)),
        ([[sessions.plugin("priority")], [sessions.plugin("gang")]], None),
    ):
        ssn = sessions.open_given(sessions.configured(*tiers), sessions.given(objects))
        read = deadlines.Deadlines.configured(ssn)
        expected = None if default is None else builders.NOON + default
        assert read.of(ssn.jobs["default/g1"]) == expected
        assert read.of(ssn.jobs["default/g2"]) == builders.NOON + timedelta(minutes=5)


def quota(hard: core.Quantity, used: core.Quantity, name: str = "cpu") -> core.ResourceQuota:
    status = core.ResourceQuotaStatus(hard={name: hard}, used={name: used})
    return core.ResourceQuota(metadata=builders.make_meta("quota", "q", "default"), status=status)


def test_a_quota_lets_in_what_it_has_room_for_counting_this_session() -> None:
    tier = [sessions.plugin("resourcequota")]
    jobs = [waiting("g1", "3"), waiting("g2", "2"), waiting("g3", "1")]
    ssn = sessions.opened(QUEUE, quota("6", "2"), *jobs, tier=tier)
    assert [enters(ssn, name) for name in ("g1", "g2", "g3")] == [True, False, True]
    assert ssn.events == {
        "default/g2": ["resource quota insufficient, requested: cpu=2, used: cpu=2, limited: cpu=6"]
    }


def test_a_quota_speaks_only_of_names_that_the_job_uses() -> None:
    tier = [sessions.plugin("resourcequota")]
    limits = quota("1", "1", name="requests.cpu")
    assert enters(sessions.opened(QUEUE, limits, waiting("g1", "3"), tier=tier), "g1")


def test_a_quota_for_some_pods_only_is_left_to_the_api_server() -> None:
    """Whom it counts is not known before there are pods; others must not wait for it."""
    tier = [sessions.plugin("resourcequota")]
    full = quota("1", "1")
    scoped = msgspec.structs.replace(full, spec=core.ResourceQuotaSpec(scopes=("Terminating",)))
    assert not enters(sessions.opened(QUEUE, full, waiting("g1", "3"), tier=tier), "g1")
    assert enters(sessions.opened(QUEUE, scoped, waiting("g1", "3"), tier=tier), "g1")


def test_a_limit_that_cannot_be_read_rejects_jobs() -> None:
    tier = [sessions.plugin("resourcequota")]
    ssn = sessions.opened(QUEUE, quota("many", "0"), waiting("g1", "1"), tier=tier)
    assert not enters(ssn, "g1")
    assert any(text.startswith("ResourceQuota default/q: cpu: ") for text in ssn.complaints)
