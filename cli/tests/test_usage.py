"""Rules of ``strom top``: who uses how much."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import pytest
from rich.text import Text

from stromboli.cli.client import ForbiddenError
from stromboli.cli.commands import top
from stromboli.cli.errors import CommandError
from stromboli.cli.render import usage
from stromboli.shared.api import core, kinds, meta, scheduling
from stromboli.shared.messages.admission import Violation
from stromboli.testkit import builders

GPUS = {usage.GPU: "8"}


def cluster_objects(*pods: core.Pod) -> usage.ClusterObjects:
    return usage.ClusterObjects(
        nodes=(builders.make_node("n1", cpu="8", memory="16Gi", extra=GPUS),),
        queues=(
            builders.make_queue("default"),
            scheduling.Queue(
                metadata=meta.ObjectMeta(name="research"),
                spec=scheduling.QueueSpec(capability={"cpu": "6", usage.GPU: "4"}),
            ),
        ),
        groups=(
            builders.make_pod_group("big", queue="research", phase="Running"),
            builders.make_pod_group("small", queue="research", phase="Inqueue"),
            builders.make_pod_group("over", queue="research", phase="Completed"),
        ),
        pods=pods,
    )


def pod(name: str, group: str, node: str = "n1", **more: Any) -> core.Pod:
    return builders.make_pod(name, group, node=node, memory="1Gi", extra={usage.GPU: "1"}, **more)


SNAPSHOT = cluster_objects(
    pod("b0", "big", phase="Running"),
    pod("b1", "big", phase="Running"),
    pod("s0", "small", node=""),
    pod("o0", "over", phase="Succeeded"),
    builders.make_pod("stranger", node="n1", cpu="2", memory="1Gi", phase="Running"),
)


def test_queues_show_usage_and_limit() -> None:
    headers, rows = usage.queues(SNAPSHOT)
    assert headers == (
        "QUEUE", "RUNNING JOBS", "PENDING JOBS", "RUNNING PODS", "PENDING PODS",
        "CPU", "MEMORY", "GPU",
    )  # fmt: skip
    assert rows == [
        ("default", "0", "0", "0", "0", "0", "0", "0"),
        ("research", "1", "1", "2", "1", "2/6(cap)", "2Gi", "2/4(cap)"),
    ]


@pytest.mark.parametrize(
    ("pod_group", "job"),
    [("Inqueue", "Pending"), ("", "Pending"), ("Running", "Running"), ("Unknown", "Running")],
)
def test_jobs_show_the_phase_of_the_job_not_of_its_pod_group(pod_group: str, job: str) -> None:
    """``strom job list`` shows no job that is Inqueue."""
    group = builders.make_pod_group("train", phase=pod_group)
    _, ((_, _, phase, *_),) = usage.jobs(usage.ClusterObjects(groups=(group,)), builders.NOON)
    assert phase == job


def test_a_parent_queue_includes_the_usage_of_its_children() -> None:
    def queue(name: str, parent: str = "", **spec: Any) -> scheduling.Queue:
        return scheduling.Queue(
            metadata=meta.ObjectMeta(name=name),
            spec=scheduling.QueueSpec(parent=parent, **spec),
        )

    objects = usage.ClusterObjects(
        queues=(
            queue("root"),
            queue("company", capability={"cpu": "8"}),
            queue("team", "company", deserved={"cpu": "4"}),
            queue("loop-a", "loop-b"),
            queue("loop-b", "loop-a"),
        ),
        groups=(
            builders.make_pod_group("train", queue="team", phase="Running"),
            builders.make_pod_group("lost", queue="loop-a", phase="Inqueue"),
        ),
        pods=(pod("p", "train", phase="Running"),),
    )
    rows = {row[0]: row[1:6] for row in usage.queues(objects)[1]}
    assert rows["team"] == ("1", "0", "1", "0", "1/4(des)")
    assert rows["company"] == ("1", "0", "1", "0", "1/8(cap)")
    assert rows["root"] == ("1", "0", "1", "0", "1")
    assert rows["loop-b"][1] == "1"


def test_jobs_are_listed_by_size_without_finished_ones() -> None:
    _, rows = usage.jobs(SNAPSHOT, builders.NOON + timedelta(minutes=5))
    assert rows == [
        ("default/big", "research", "Running", "2", "0", "2", "2Gi", "2", "5m"),
        ("default/small", "research", "Pending", "0", "1", "0", "0", "0", "5m"),
    ]


def test_nodes_count_strangers_too() -> None:
    _, rows = usage.nodes(SNAPSHOT)
    assert rows == [("n1", "3", "4/8", "3Gi/16Gi", "2/8", "[#####-----]  50%")]
    assert usage.headline(SNAPSHOT) == [
        "1 node, 3 pods running, 1 pending",
        "CPU [#####-----]  50%",
        "memory [##--------]  19%",
        "GPU [##--------]  25%",
    ]


def test_a_pod_holds_the_most_that_it_may_need_at_once() -> None:
    def container(cpu: str, policy: str | None = None) -> core.Container:
        wanted = core.ResourceRequirements(requests={"cpu": cpu})
        return core.Container(name=cpu, resources=wanted, restart_policy=policy)

    made = builders.make_pod(
        containers=[container("1"), container("2")],
        init_containers=[container("5"), container("1", "Always")],
        overhead={"cpu": "100m"},
        node="n1",
    )
    use = usage.PodUsage()
    use.take(made)
    assert use.held == {"cpu": 5100}


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 0, "[----------]   0%"),
        (1, 2, "[#####-----]  50%"),
        (3, 2, "[##########] 150%"),
    ],
)
def test_a_bar_never_leaves_its_frame(part: int, whole: int, shown: str) -> None:
    assert usage.bar(part, whole) == shown


@pytest.mark.parametrize(
    ("what", "first"), [("queues", "QUEUE"), ("jobs", "JOB"), ("nodes", "NODE")]
)
def test_top_is_a_table_where_there_is_no_terminal(
    api_server: Any, strom: Any, what: str, first: str
) -> None:
    api_server.create(kinds.NODES, builders.make_node("n1"))
    shown = strom("top", what)
    assert shown.exit_code == 0
    headline, empty, header, *_ = shown.stdout.splitlines()
    assert headline.startswith("1 node, 0 pods running, 0 pending   CPU [----------]   0%")
    assert (empty, header.split()[0]) == ("", first)
    assert strom("top", "nothing").exit_code == 2


def test_missing_rights_are_one_line_with_an_alternative() -> None:
    """Not which twenty rights are missing."""

    class Tenant:
        def scheduling_input(self) -> Any:
            missing = tuple(Violation(path="rights", reason=f"r{n}") for n in range(20))
            raise ForbiddenError("the cluster", missing)

    with pytest.raises(CommandError) as caught:
        top.read_table(cast("Any", Tenant()), top.What.QUEUES)
    news = caught.value.lines()
    assert news[0] == "strom: top: it reads the whole cluster: 20 permissions are missing"
    assert news[1].startswith("next: list your own jobs: strom job list -n NAMESPACE; or ask")
    assert len(news) == 2


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("height", [5, 12, 40])
def test_a_screen_shows_what_fits_and_counts_the_rest(width: int, height: int) -> None:
    """For all sizes: no line is too wide, there are no more lines than fit, and no name is
    truncated.
    """
    names = [f"node-{number}" for number in range(20)]
    rows = [(name, "3", "2/8", "4Gi/16Gi", "0/8", usage.bar(1, 4)) for name in names]
    headers = ("NODE", "PODS", "CPU", "MEMORY", "GPU", "FULLEST")
    lines = [
        Text.from_ansi(line).plain
        for line in top.screen(["a" * 30, "b" * 20], headers, rows, width, height)
    ]
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    shown = sum(name in words for name in names)
    more = len(names) - shown
    assert (f"and {more} more: strom top --once" in lines) is bool(more)


class FirstRows(Sequence[tuple[str, ...]]):
    """Many rows, of which only the first few may be read."""

    def __init__(self, length: int, readable: int) -> None:
        self._length = length
        self._readable = readable

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(self._length))]
        assert at < self._readable, "a row that no screen of this height can show"
        return (f"job-{at}", "default")


def test_a_screen_of_ten_thousand_jobs_lays_out_only_rows_that_can_fit() -> None:
    rows = FirstRows(10_000, 24)
    lines = top.screen(["1 node"], ("NAME", "QUEUE"), rows, width=80, height=24)
    assert len(lines) == 24
    assert lines[-1] == "and 9980 more: strom top --once"
