"""Expected starts: a simulation forward from the present, over draws of run times."""

import json
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from embedded.tests.simulations import Simulated, configured, job, nodes
from stromboli.embedded.commands import simulate
from stromboli.embedded.simulation.core import objects, workload
from stromboli.scheduler.core import plugins
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.forecast import expected_starts, gang_pods, run_times
from stromboli.shared import decoding, keys
from stromboli.shared.api import meta, scheduling
from stromboli.shared.formats import units
from stromboli.testkit import builders

BY_AGE = configured(plugin_names=("priority", "gang", "predicates", "overcommit"))
JOB = run_times.JobTraits("ann", "train-1", "q", 2)


def waiting(
    name: str, at_s: int, estimate: str = "", cpu: str = "1", size: int = 1, queue: str = "default"
) -> scheduling.PodGroup:
    """A gang that is not admitted and has no pods yet."""
    return builders.make_pod_group(
        name,
        size,
        queue=queue,
        phase="Pending",
        min_resources={"cpu": cpu},
        annotations={keys.RUNNING_ESTIMATE: estimate} if estimate else None,
        created=builders.NOON + timedelta(seconds=at_s),
    )


def running(
    name: str, node: str, estimate: str = "", for_s: int = 0, cpu: str = "1"
) -> list[meta.Object]:
    """A gang of one pod that has been running for some seconds."""
    group = waiting(name, -for_s, estimate, cpu)
    status = msgspec.structs.replace(group.status, phase="Running")
    pod = builders.make_pod(f"{name}-0", name, cpu=cpu, node=node, phase="Running")
    since = builders.NOON - timedelta(seconds=for_s)
    started = msgspec.structs.replace(pod.status, start_time=since)
    return [
        msgspec.structs.replace(group, status=status),
        msgspec.structs.replace(pod, status=started),
    ]


def cluster(*objs: meta.Object, cpu: str = "1") -> cluster_objects.Cluster:
    """One node and the standard queues beside these objects."""
    kinds: dict[type, list[meta.Object]] = {}
    queues = objects.with_standard_queues(
        [each for each in objs if isinstance(each, scheduling.Queue)]
    )
    others = [each for each in objs if not isinstance(each, scheduling.Queue)]
    for each in (*queues, *others, builders.make_node("n1", cpu=cpu)):
        kinds.setdefault(type(each), []).append(each)
    by_name = {kind.__name__: tuple(members) for kind, members in kinds.items()}
    return decoding.convert(
        {
            "now": builders.NOON,
            "nodes": by_name.get("Node", ()),
            "pods": by_name.get("Pod", ()),
            "pod_groups": by_name.get("PodGroup", ()),
            "queues": by_name.get("Queue", ()),
        },
        cluster_objects.Cluster,
    )


def starts(
    present: cluster_objects.Cluster,
    learned: run_times.RunTimeEstimator | None = None,
    draws: int = 1,
) -> dict[str, expected_starts.ExpectedStart]:
    """Expected starts by name, with evenly spread quantiles."""
    estimator = learned or run_times.RunTimeEstimator()
    groups = len(present.pod_groups)
    parts = [[(at + 0.5) / draws] * groups for at in range(draws)]
    options = expected_starts.Options(configured=BY_AGE, find=plugins.find)
    found = expected_starts.expected_starts(present, options, estimator.draw, parts)
    return {each.pod_group.partition("/")[2]: each for each in found}


def test_jobs_with_estimates_start_one_after_another() -> None:
    present = cluster(
        *running("runs", "n1", "10m", for_s=240), waiting("a", 1, "1h"), waiting("b", 2, "1h")
    )
    found = starts(present)
    assert {name: each.p50_s for name, each in found.items()} == {"a": 360, "b": 3960}
    assert {each.answer for each in found.values()} == {"starts"}


def test_a_gang_without_pods_gets_what_its_pod_group_says() -> None:
    """The controller also writes the names of quotas to minResources; no node has these."""
    group = waiting("a", 1, "1h", size=3)
    minimum = {"cpu": "500m", "memory": "100Mi", "nvidia.com/gpu": "4", "pods": "3"}
    minimum |= {"requests.cpu": "500m", "requests.memory": "100Mi", "count/pods": "3"}
    spec = msgspec.structs.replace(group.spec, min_resources=minimum)
    pod = gang_pods.member(msgspec.structs.replace(group, spec=spec), 0, "u", "volcano", members=3)
    (container,) = pod.spec.containers
    found = units.amounts(container.resources.requests or {})
    assert found == {"cpu": 167, "memory": -(-100 * 2**20 // 3), "nvidia.com/gpu": 2000}


def test_a_gang_whose_tasks_have_minimums_starts_with_pods_of_these_tasks() -> None:
    """As the controller writes them for each job."""
    group = waiting("a", 1, "1h", cpu="3", size=3)
    spec = msgspec.structs.replace(group.spec, min_task_member={"ps": 1, "worker": 2})
    waits = msgspec.structs.replace(group, spec=spec)
    assert gang_pods.tasks_of(waits) == ["ps", "worker", "worker"]
    found = starts(cluster(*running("runs", "n1", "10m", cpu="4"), waits, cpu="4"))
    assert (found["a"].answer, found["a"].p50_s) == ("starts", 600)


def test_a_late_job_is_expected_to_need_as_long_again_as_it_is_late() -> None:
    present = cluster(*running("runs", "n1", "10m", for_s=700), waiting("a", 1))
    assert starts(present)["a"].p50_s == 100


def test_a_forecast_of_known_run_times_is_the_simulation() -> None:
    jobs = [job(f"j{at}", 0, 60 * (1 + at % 3), tasks=1 + at % 2) for at in range(12)]
    groups = [
        waiting(
            each.name,
            at - 100,
            f"{each.duration_us // workload.SECOND_US}s",
            str(each.tasks),
            each.tasks,
        )
        for at, each in enumerate(jobs)
    ]
    found = starts(cluster(*groups, cpu="3"))
    ran = Simulated(nodes(1, cpu=3), jobs, workload.Options(configured=BY_AGE))
    assert {name: each.p50_s for name, each in found.items()} == ran.starts_s


def test_ends_within_the_tolerance_share_a_session_and_starts_are_late_by_at_most_that() -> None:
    jobs = [waiting(f"j{at}", at, f"{60 + 7 * at}s") for at in range(30)]
    present = cluster(*jobs, cpu="3")
    exact = starts(present)
    options = expected_starts.Options(configured=BY_AGE, find=plugins.find, tolerance=0.05)
    draw = run_times.RunTimeEstimator().draw
    merged = expected_starts.expected_starts(present, options, draw, [[0.5] * 30])
    for each in merged:
        right_s = exact[each.pod_group.partition("/")[2]].p50_s
        assert right_s is not None
        assert each.p50_s is not None
        assert right_s <= each.p50_s <= right_s * 1.05**30
    assert any(each.p50_s != exact[each.pod_group[8:]].p50_s for each in merged)


def test_a_draw_that_is_cut_forecasts_the_gangs_that_start_first() -> None:
    present = cluster(*(waiting(f"j{at}", at, "1m") for at in range(10)))
    options = expected_starts.Options(configured=BY_AGE, find=plugins.find, first=4)
    draw = run_times.RunTimeEstimator().draw
    found = expected_starts.expected_starts(present, options, draw, [[0.5] * 10])
    assert {each.pod_group: each.p50_s for each in found} == {
        f"default/j{at}": 60.0 * at for at in range(4)
    }


def test_the_range_follows_the_run_times_of_similar_jobs() -> None:
    learned = run_times.RunTimeEstimator()
    for minutes in range(1, 101):
        learned.add(run_times.JobTraits("", "other", "default", 1), minutes * 60)
    start = starts(cluster(*running("runs", "n1"), waiting("a", 1)), learned, draws=20)["a"]
    assert (start.p10_s, start.p50_s, start.p90_s) == (8 * 60, 48 * 60, 88 * 60)


def test_the_answer_names_what_keeps_a_job_from_starting() -> None:
    limited = scheduling.Queue(
        metadata=meta.ObjectMeta(name="limited"),
        spec=scheduling.QueueSpec(parent="root", capability={"cpu": "1"}),
    )
    shut = scheduling.Queue(
        metadata=meta.ObjectMeta(name="shut"),
        spec=scheduling.QueueSpec(parent="root"),
        status=scheduling.QueueStatus(state="Closed"),
    )
    foreign = builders.make_pod("service", cpu="1", node="n1", scheduler="other", phase="Running")
    present = cluster(
        limited,
        shut,
        foreign,
        *running("week", "n1", "240h", cpu="1"),
        waiting("large", 1, cpu="9"),
        waiting("later", 2, cpu="3"),
        waiting("quota", 3, cpu="2", queue="limited"),
        waiting("now", 0, cpu="1"),
        waiting("closed", 5, cpu="1", queue="shut"),
        cpu="4",
    )
    by = configured(plugin_names=("priority", "gang", "predicates", "proportion"))
    options = expected_starts.Options(configured=by, find=plugins.find)
    found = expected_starts.expected_starts(
        present, options, run_times.RunTimeEstimator().draw, [[0.5] * 6]
    )
    answers = {each.pod_group.partition("/")[2]: each.answer for each in found}
    assert answers == {
        "large": "can-never-fit",
        "quota": "can-never-fit",
        "later": "not-within-7-days",
        "closed": "blocked-by-quota",
        "now": "starts",
    }


def test_the_estimator_prefers_the_narrowest_group_with_enough_jobs() -> None:
    learned = run_times.RunTimeEstimator()
    for at in range(run_times.ENOUGH):
        learned.add(JOB._replace(name=f"train-{at}"), 100)
        learned.add(JOB._replace(name="eval"), 7)
        learned.add(JOB._replace(user="bob", name="x"), 1000)
    assert learned.draw(JOB, 0, 0.9) == 100
    assert learned.draw(JOB._replace(name="eval-9"), 0, 0.9) in (7, 100)
    assert learned.draw(JOB._replace(user="eve"), 0, 0.99) == 1000


def test_an_estimate_of_a_running_job_exceeds_what_it_has_run() -> None:
    learned = run_times.RunTimeEstimator()
    for at in range(1, 21):
        learned.add(JOB, at * 10)
    assert learned.draw(JOB, 100, 0.0) == 110
    assert learned.draw(JOB, 1000, 0.5) == 2000


def test_a_group_keeps_the_newest_run_times() -> None:
    learned = run_times.RunTimeEstimator()
    for run_s in [10.0] * run_times.KEPT + [20.0] * run_times.KEPT:
        learned.add(JOB, run_s)
    assert learned.draw(JOB, 0, 0.0) == 20


def test_names_of_users_do_not_grow_the_estimator_without_limit() -> None:
    """The oldest name is forgotten; its queue still has its run time."""
    learned = run_times.RunTimeEstimator()
    for _ in range(run_times.ENOUGH):
        learned.add(JOB._replace(user="eve", name="old", size=9), 7)
    for at in range(run_times.MOST_GROUPS):
        learned.add(JOB._replace(name="x" * at), 100)
    assert learned.draw(JOB._replace(user="eve", name="old", size=9), 0, 0.5) == 100


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """What ``strom cluster dump`` prints for a node that is in use for ten more minutes."""
    present = cluster(*running("runs", "n1", "15m", for_s=300), waiting("a", 1))
    kinds = {"nodes": "Node", "pods": "Pod", "pod_groups": "PodGroup", "queues": "Queue"}
    items = [
        {"apiVersion": "v1", "kind": kind, **json.loads(msgspec.json.encode(each))}
        for field, kind in kinds.items()
        for each in getattr(present, field)
    ]
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


def test_the_command_shows_a_range_for_each_pending_job(dump: Path) -> None:
    more = ["--objects", str(dump), "--now", builders.NOON.isoformat()]
    result = CliRunner().invoke(simulate.app, ["forecast", *more])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1].split()[:5] == [
        "default/a",
        "default",
        "10m",
        "10m",
        "10m",
    ]
    result = CliRunner().invoke(simulate.app, ["forecast", *more, "-o", "json"])
    (found,) = json.loads(result.stdout)["pod_groups"]
    assert (found["answer"], found["p10_s"], found["p90_s"]) == ("starts", 600, 600)


def test_a_wrong_list_of_finished_jobs_is_refused_with_its_lines(
    dump: Path, tmp_path: Path
) -> None:
    (tmp_path / "done.csv").write_text("job,run_s\na,-1\n")
    more = ["--objects", str(dump), "--history", str(tmp_path / "done.csv")]
    result = CliRunner().invoke(simulate.app, ["forecast", *more])
    assert result.exit_code != 0
    assert "done.csv:2: column run_s" in str(result.exception)
