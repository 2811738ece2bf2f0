"""The rules of a simulation, each on the smallest scenario that shows it."""

from collections import Counter

import msgspec
import pytest

from embedded.tests import simulations
from embedded.tests.simulations import Simulated, job, nodes
from stromboli.embedded.simulation.core import comparison, kernel, results, workload
from stromboli.scheduler.core import actions, plugins
from stromboli.scheduler.core.config import config_reader, configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.api import meta, reservation, scheduling

PREEMPTING = simulations.configured(
    "enqueue, allocate, preempt", ("priority", "gang", "predicates"), enablePreemptable=False
)


def options(**changes: object) -> workload.Options:
    return msgspec.structs.replace(workload.Options(), **changes)


def test_jobs_start_in_order_of_submission_as_room_becomes_free() -> None:
    ran = Simulated(nodes(1), [job("a"), job("b", 1), job("c", 2, 5)])
    assert ran.starts_s == {"a": 0, "b": 10, "c": 20}
    assert ran.ends_s == {"a": 10, "b": 20, "c": 25}
    assert ran.kernel.stopped == ""


def test_a_gang_starts_whole_or_not_at_all() -> None:
    ran = Simulated(nodes(3), [job("long", 0, 100), job("gang", 1, 10, tasks=3)])
    assert ran.starts_s == {"gang": 100, "long": 0}


def test_an_elastic_job_starts_with_its_gang_and_ends_with_its_last_task() -> None:
    ran = Simulated(nodes(2), [job("elastic", 0, 10, tasks=3, min_available=2)])
    assert ran.starts_s == {"elastic": 0}
    assert ran.ends_s == {"elastic": 20}


def synchronous(each: workload.Job) -> workload.Job:
    return msgspec.structs.replace(each, is_synchronous=True)


def test_a_synchronous_job_makes_progress_while_all_of_its_tasks_run() -> None:
    """Its first task holds a node from the start, and works when the second one has one, too."""
    other = job("other", 0, 30)
    training = synchronous(job("training", 1, 10, tasks=2, min_available=1))
    ran = Simulated(nodes(2), [other, training])
    assert ran.starts_s == {"other": 0, "training": 1}
    assert ran.ends_s == {"other": 30, "training": 40}


def test_synchronous_jobs_that_are_no_gangs_may_keep_each_other_waiting() -> None:
    first, second = (synchronous(job(name, 0, 10, tasks=3, min_available=1)) for name in ("a", "b"))
    fair = simulations.configured("allocate", ("drf", "predicates"))
    ran = Simulated(nodes(4), [first, second], options(configured=fair))
    assert ran.ends_s == {}
    assert ran.kernel.stopped == "no event is left"


@pytest.mark.parametrize(("keeps_progress", "end_s"), [(True, 250), (False, 280)])
def test_a_synchronous_job_that_lost_a_task_waits_for_it(
    keeps_progress: bool, end_s: float
) -> None:
    """The other task keeps its node and its progress."""
    training = synchronous(job("training", 0, 200, tasks=2, min_available=1))
    jobs = [training, job("high", 30, 50, tasks=1, priority=10)]
    ran = Simulated(nodes(2), jobs, options(configured=PREEMPTING, keeps_progress=keeps_progress))
    assert ran.ends_s == {"high": 80, "training": end_s}


def test_an_evicted_gang_starts_over() -> None:
    jobs = [job("low", 0, 100, tasks=2), job("high", 30, 50, tasks=1, priority=10)]
    ran = Simulated(nodes(2), jobs, options(configured=PREEMPTING))
    low = ran.finished["low"]
    assert ran.ends_s == {"high": 80, "low": 180}
    assert (low.evictions, low.evicted_tasks, low.attempts) == (1, 1, 2)
    assert ran.starts_s["low"] == 0


def test_a_job_that_keeps_its_progress_continues_where_it_was() -> None:
    jobs = [job("low", 0, 100, tasks=2), job("high", 30, 50, tasks=1, priority=10)]
    ran = Simulated(nodes(2), jobs, options(configured=PREEMPTING, keeps_progress=True))
    assert ran.ends_s == {"high": 80, "low": 150}


def test_an_eviction_above_the_minimum_restarts_only_the_task() -> None:
    jobs = [
        job("elastic", 0, 100, tasks=2, min_available=1),
        job("high", 30, 50, tasks=1, priority=10),
    ]
    ran = Simulated(nodes(2), jobs, options(configured=PREEMPTING))
    assert ran.finished["elastic"].attempts == 1
    assert ran.ends_s == {"elastic": 180, "high": 80}


def test_a_failed_node_restarts_its_jobs_and_takes_none_until_it_returns() -> None:
    down = workload.NodeFailure("n", 4 * simulations.SECOND, 50 * simulations.SECOND)
    ran = Simulated(nodes(1), [job("a")], failures=[down])
    assert ran.ends_s == {"a": 60}
    assert ran.finished["a"].evictions == 1


def test_a_workload_that_never_ends_stops_and_names_the_reason_of_the_scheduler() -> None:
    ran = Simulated(nodes(1), [job("fits"), job("large", cpu=2)])
    summary = results.summarize(ran.kernel, 0)
    assert ran.kernel.stopped == "no event is left"
    assert summary.can_never_start == 1
    (unfinished,) = summary.unfinished_jobs
    assert unfinished.job == "large"
    assert unfinished.reason.startswith("can never fit: largest node has 1 cpu, a pod needs 2 cpu")


def test_a_job_that_no_node_accepts_does_not_keep_others_from_their_queue() -> None:
    """They are admitted together, and no later event starts a session."""
    stuck = msgspec.structs.replace(job("a", tasks=2), node_selector="zone=x")
    assert Simulated(nodes(2), [stuck, job("b")]).starts_s == {"b": 0}


def test_a_simulation_stops_at_until() -> None:
    ran = Simulated(nodes(1), [job("a"), job("b")], options(until_us=15 * simulations.SECOND))
    summary = results.summarize(ran.kernel, 0)
    assert (summary.end_s, summary.finished) == (15, 1)
    assert summary.stopped == "the time of --until is reached"
    assert summary.unfinished_jobs[0].reason == "it runs"


def test_without_a_finished_job_waits_and_completion_times_are_absent() -> None:
    """0 would be the best result of a comparison."""
    ran = Simulated(nodes(1), [job("a")], options(until_us=5 * simulations.SECOND))
    summary = results.summarize(ran.kernel, 0)
    assert summary.finished == 0
    names = ("makespan_s", "jct_mean_s", "jct_p99_s", "wait_mean_s", "wait_p50_s")
    assert [getattr(summary, name) for name in names] == [None] * len(names)
    (queue,) = summary.queues
    assert (queue.wait_mean_s, queue.jct_mean_s) == (None, None)
    (compared,) = comparison.compare({"one": [summary]})
    assert "wait_mean_s" not in compared.measures


class Unfair:
    """A plugin that lets every waiting job evict any other, and serves those first that run no
    pod, so that no trial of evictions shows that the other one comes back."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        pass

    def open(self, ssn: session.Session) -> None:
        ssn.add_preemptable(lambda _, candidates: extension_points.Victims(list(candidates)))
        ssn.add_job_starving(lambda found: found.ready + found.waiting < len(found.tasks))
        running = {key for key, each in ssn.jobs.items() if each.ready}
        ssn.add_job_order(key=lambda each: each.key in running)

    def close(self, ssn: session.Session) -> None:
        pass


def test_jobs_that_only_evict_each_other_end_the_simulation() -> None:
    document = {
        "actions": "enqueue, allocate, preempt",
        "tiers": [{"plugins": [{"name": "unfair"}, {"name": "predicates"}]}],
    }
    names = {*plugins.NAMES, "unfair"}
    configured = config_reader.read_configuration(document, actions.NAMES, names)
    scenario = workload.Scenario(
        nodes(1), [job("a", 0, 100), job("b", 1, 100)], options=options(configured=configured)
    )
    simulated = kernel.Simulation(
        scenario, find=lambda name, _: Unfair if name == "unfair" else plugins.find(name, ())
    )
    simulated.run()
    assert simulated.stopped == "jobs only evict each other: no job ends"
    assert len(simulated.runs) == 2


def test_the_same_input_gives_the_same_bytes() -> None:
    def once() -> bytes:
        jobs = [
            job(f"j{at}", at % 7, 5 + at % 4, 1 + at % 3, queue=f"q{at % 2}") for at in range(30)
        ]
        return msgspec.json.encode(results.summarize(Simulated(nodes(4), jobs).kernel, 7))

    assert once() == once()


def test_utilisation_counts_what_tasks_request_until_the_end() -> None:
    summary = results.summarize(
        Simulated(nodes(2, cpu=4, gpus=2), [job("a", 0, 10, gpus=2), job("b", 5, 5, cpu=4)]).kernel,
        0,
    )
    assert summary.makespan_s == 10
    assert summary.gpu_utilisation == 0.5
    assert summary.cpu_utilisation == (10 * 1 + 5 * 4) / (10 * 8)
    assert [each.gpu_hours for each in summary.queues] == [pytest.approx(20 / 3600, abs=1e-6)]


def test_sessions_of_different_times_may_share_an_interval() -> None:
    jobs = [job(f"j{at}", at, 100) for at in range(20)]
    exact = Simulated(nodes(30), jobs)
    coarse = Simulated(nodes(30), jobs, options(interval_us=10 * simulations.SECOND))
    assert coarse.kernel.scheduler.sessions < exact.kernel.scheduler.sessions / 2
    assert all(0 <= coarse.starts_s[name] - at <= 10 for name, at in exact.starts_s.items())


def test_each_session_is_followed_by_a_pause() -> None:
    """As in the service: the session that admits a gang to its queue is not the one that places it,
    and events of the pause share the next session."""
    pause_us = simulations.SECOND // 100
    jobs = [
        job("a"),
        msgspec.structs.replace(job("b"), submit_us=pause_us // 2),
        job("c", submit_s=1),
    ]
    ran = Simulated(nodes(3), jobs, options(pause_us=pause_us))
    assert ran.starts_s == {"a": 0.01, "b": 0.02, "c": 1.01}
    assert Simulated(nodes(3), jobs).starts_s == {"a": 0, "b": 0.005, "c": 1}


def test_decisions_are_forgotten_once_they_are_executed() -> None:
    """A simulation of a million jobs cannot keep two decisions of each."""
    assumed = Simulated(
        nodes(1), [job(f"j{at}") for at in range(50)]
    ).kernel.scheduler.cache.assumed
    all_decisions = 2 * 50
    first_kept, _ = assumed.restart_from(all_decisions, 0)
    assert first_kept > all_decisions - 5


def test_a_running_job_keeps_no_decision() -> None:
    """Its admission is executed: 60,000 running jobs would keep as many."""
    jobs = [job(f"j{at}", duration_s=1000) for at in range(50)]
    ran = Simulated(nodes(60), [*jobs, job("last", 10)], options(until_us=20 * simulations.SECOND))
    assert len(ran.kernel.runs) == 50
    assert len(ran.kernel.scheduler.cache.assumed) <= 1


def test_queues_of_a_tree_do_not_take_room_from_each_other_without_end() -> None:
    """b1 and a2 hold all that their branches deserve when b2 comes: it takes from b1, and not from
    branch a, which would be served first and take it back."""
    configured = config_reader.read_configuration(
        {
            "actions": "allocate, reclaim",
            "tiers": [
                {"plugins": [{"name": "gang"}, {"name": "predicates"}]},
                {"plugins": [{"name": "capacity", "enableHierarchy": True}]},
            ],
        },
        actions.NAMES,
        plugins.NAMES,
    )
    queues = [
        scheduling.Queue(
            metadata=meta.ObjectMeta(name=name),
            spec=scheduling.QueueSpec(parent=parent, deserved={"cpu": cpu}, reclaimable=True),
        )
        for name, parent, cpu in (
            ("a", "", "4"), ("b", "", "4"), ("a2", "a", "2"), ("b1", "b", "2"), ("b2", "b", "2"),
        )
    ]  # fmt: skip
    jobs = [
        job(f"{queue}-{begin_s}-{number}", begin_s, 1000, queue=queue)
        for begin_s, queue in enumerate(("a2", "b1", "a2", "b2"))
        for number in range(4)
    ]
    scenario = workload.Scenario(
        nodes(8), jobs, tuple(queues), (),
        options(configured=configured, keeps_progress=True, until_us=900 * simulations.SECOND),
    )  # fmt: skip
    simulated = kernel.Simulation(scenario)
    simulated.run()
    held = Counter(each.job.queue for each in simulated.runs.values() for _ in range(each.running))
    assert held == {"a2": 4, "b1": 2, "b2": 2}
    assert simulated.measured.evictions == 2


def test_pods_have_the_times_at_which_they_start_and_end() -> None:
    """Plugins compute from them how long a task has run, and how long it still runs."""
    options = msgspec.structs.replace(workload.Options(), until_us=15 * simulations.SECOND)
    jobs = [job("a", 2, 10, tasks=2, min_available=1)]
    tasks = Simulated(simulations.nodes(1), jobs, options).kernel.scheduler.cache.model.tasks
    ended, runs = (tasks[f"default/a-task-{at}"].pod.status for at in range(2))
    assert ended.start_time == workload.datetime_at(2 * simulations.SECOND)
    assert [(each.type, each.last_transition_time) for each in ended.conditions] == [
        ("Ready", workload.datetime_at(12 * simulations.SECOND))
    ]
    assert runs.start_time == workload.datetime_at(12 * simulations.SECOND)


def test_times_in_objects_are_whole_seconds() -> None:
    """As an API server stores them: plugins see no fraction in a simulation either."""
    jobs = [
        msgspec.structs.replace(job("a", duration_s=4, tasks=2), submit_us=2_700_000),
        msgspec.structs.replace(job("b", tasks=2), submit_us=2_900_000),
    ]
    until = options(until_us=7 * simulations.SECOND)
    ran = Simulated(nodes(2), jobs, until)
    assert ran.starts_s == {"a": 2.7}
    model = ran.kernel.scheduler.cache.model
    (group,) = (each.pod_group for each in model.jobs.values())
    pod = model.tasks["default/b-task-0"].pod
    assert group.metadata.creation_timestamp == workload.datetime_at(2 * simulations.SECOND)
    assert pod.metadata.creation_timestamp == workload.datetime_at(6 * simulations.SECOND)
    assert pod.status.start_time == workload.datetime_at(6 * simulations.SECOND)


def test_jobs_of_the_same_second_start_in_the_order_of_their_submission() -> None:
    jobs = [
        msgspec.structs.replace(job(name), submit_us=1_000_000 + 100_000 * at)
        for at, name in enumerate(("c", "a", "b"))
    ]
    assert Simulated(nodes(1), jobs).starts_s == {"a": 11, "b": 21, "c": 1}


def with_reservation(*jobs: workload.Job, at_start: str = "") -> Simulated:
    """On two nodes, one of which is reserved for the queue ``course`` from 50 s to 150 s."""
    spec = reservation.AdvanceReservationSpec(
        start_time=workload.datetime_at(50 * simulations.SECOND),
        duration="100s",
        node_names=("n-0",),
        queues=("course",),
        at_start=at_start,
    )
    made = reservation.AdvanceReservation(metadata=meta.ObjectMeta(name="r"), spec=spec)
    return Simulated(nodes(2), jobs, reservations=(made,))


def test_a_job_starts_when_the_period_of_its_reservation_begins() -> None:
    """Also if nothing else happens at this time."""
    own = msgspec.structs.replace(job("own", 1, queue="course"), reservation="r")
    assert with_reservation(own).starts_s == {"own": 50}


def test_a_job_that_would_not_end_before_a_reservation_starts_elsewhere_or_after_it() -> None:
    jobs = [
        msgspec.structs.replace(job(name, 0, 10, tasks=2), estimate_us=estimate_s * 10**6)
        for name, estimate_s in (("short", 50), ("long", 60))
    ]
    assert with_reservation(*jobs).starts_s == {"long": 150, "short": 0}


def test_a_job_that_runs_longer_than_it_states_delays_a_reserved_one_unless_it_is_evicted() -> None:
    late = msgspec.structs.replace(job("late", 0, 70, tasks=2), estimate_us=30 * 10**6)
    own = msgspec.structs.replace(job("own", 1, queue="course"), reservation="r")
    assert with_reservation(late, own).starts_s == {"late": 0, "own": 70}
    evicting = with_reservation(late, own, at_start="Evict")
    assert evicting.starts_s["own"] == 50
    assert evicting.kernel.measured.evictions == 1
