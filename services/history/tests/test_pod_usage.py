"""What attempts have used, from measurements in any order; on both databases."""

from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from services.history.tests.support import events
from stromboli.history.core import folding, pod_usage
from stromboli.history.core.rows import AttemptRow, Rows, micros
from stromboli.history.store import daily_usage, database, queries, retention, usage, writer
from stromboli.history.store.database import Database
from stromboli.shared import topics
from stromboli.shared.api.views import accounting
from stromboli.shared.bus import port
from stromboli.shared.messages import node_usage

GIB = events.GIB
NOW = events.at(30 * 86_400)


def measured(
    second: float, *pods: node_usage.PodUsage, node: str = "n1", sampler: str = "run"
) -> node_usage.PodUsageMeasured:
    """The agent of a node has measured pods."""
    return node_usage.PodUsageMeasured(node=node, at=events.at(second), sampler=sampler, pods=pods)


def used(cpu_s: float, memory: int = GIB, pod: str = "p1", **fields: Any) -> node_usage.PodUsage:
    known: dict[str, Any] = {"pod_uid": f"{pod}-uid", "counter": "boot/1"}
    known |= {"cpu_ms": round(1000 * cpu_s), "max_memory_bytes": memory}
    return node_usage.PodUsage(**(known | fields))


def life(pod: str = "p1", begin: float = 0, **fields: Any) -> list[Any]:
    """A pod that holds two cores, 4 GiB and a GPU for a hundred seconds."""
    steps = (
        ("Pending", 0, ""),
        ("Bound", 10, "n1"),
        ("Running", 20, "n1"),
        ("Succeeded", 110, "n1"),
    )
    return [events.task(it, begin + at, pod, node=node, **fields) for it, at, node in steps]


async def apply(store: Database, *batches: list[Any]) -> None:
    made = writer.Writer(store)
    await made.position()
    for batch in batches:
        records = [events.record(it, number) for number, it in enumerate(batch)]
        assert await made.apply(records, port.Position({}, {}, {})) == []


async def attempts(store: Database) -> dict[str, accounting.Attempt]:
    page = await queries.attempts(store, accounting.AttemptQuery(), NOW)
    return {it.pod: it for it in page.attempts}


def values(attempt: accounting.Attempt) -> tuple[Any, ...]:
    return (
        attempt.used_cpu_seconds,
        attempt.max_memory_bytes,
        attempt.used_gpu_seconds,
        attempt.max_gpu_memory_bytes,
    )


async def report(store: Database, *by: str, until: float = 86_400) -> tuple[accounting.Usage, ...]:
    query = accounting.UsageQuery(since=events.at(-86_400 / 2), until=events.at(until), by=by)
    return (await usage.report(store, query, NOW)).usage


async def add_all(store: Database) -> None:
    while await daily_usage.add_some(store, micros(NOW)):
        pass


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("is_one_batch", [True, False])
async def test_a_measurement_counts_wherever_it_is_read(
    store: Database, place: int, *, is_one_batch: bool
) -> None:
    """Also behind the end of the pod: the last values of a short pod come later."""
    read = life()
    read.insert(place, measured(115, used(150)))
    await apply(store, *([read] if is_one_batch else [[it] for it in read]))
    assert values((await attempts(store))["p1"]) == (150.0, GIB, None, None)


async def test_without_a_measurement_values_are_unknown(store: Database) -> None:
    await apply(store, life())
    assert values((await attempts(store))["p1"]) == (None, None, None, None)


async def test_counters_that_began_again_add_up_and_the_peak_stays(store: Database) -> None:
    """The node restarted, and so did its agent."""
    await apply(
        store,
        life(),
        [measured(30, used(10, 3 * GIB, gpu_ms=7000, max_gpu_memory_bytes=9))],
        [measured(60, used(5, GIB, counter="boot/2", gpu_ms=1000), sampler="again")],
    )
    assert values((await attempts(store))["p1"]) == (15.0, 3 * GIB, 8.0, 9)


async def test_the_agent_of_another_node_cannot_report_for_a_pod(store: Database) -> None:
    forged = measured(50, used(10**9, 2**50), node="n2")
    for batches in ([life(), [forged]], [[forged], life()]):
        await apply(store, *batches)
        assert values((await attempts(store))["p1"]) == (None, None, None, None)


async def test_values_that_no_agent_could_send_stop_nothing(store: Database) -> None:
    """The monitor rejects them; a record that is on the topic all the same is read."""
    odd = used(0, -5, cpu_ms=-(10**18), counter="\0", gpu_ms=2**62)
    huge = used(0, 2**62, cpu_ms=2**62, counter="c")
    await apply(store, life(), [measured(30, odd, huge), measured(31, huge, node="\0")])
    attempt = (await attempts(store))["p1"]
    assert attempt.used_cpu_seconds == 2**62 / 1000
    assert attempt.max_memory_bytes == 2**62
    await add_all(store)
    assert len(await report(store, "user")) == 1


COUNTERS = st.sampled_from(["a", "b", "c"])
MEASUREMENTS = st.lists(
    st.tuples(
        COUNTERS,
        st.integers(0, 10**6),
        st.integers(0, 10**12),
        st.none() | st.integers(0, 10**6),
        st.sampled_from(["n1", "n1", "n2"]),
        COUNTERS,
    ),
    max_size=12,
)


@given(measurements=MEASUREMENTS, data=st.data())
def test_order_and_repetition_of_records_change_nothing(
    measurements: list[Any], data: st.DataObject
) -> None:
    """The pod's own events keep their order, which is that of their topic. The expected values come
    from the measurements alone."""
    records = [
        measured(
            30,
            used(
                0,
                memory,
                cpu_ms=cpu_ms,
                counter=counter,
                gpu_ms=gpu_ms,
                max_gpu_memory_bytes=gpu_ms,
            ),
            node=node,
            sampler=sampler,
        )
        for counter, cpu_ms, memory, gpu_ms, node, sampler in measurements
    ]
    repeated = data.draw(st.permutations([*records, *records]))
    read: list[Any] = life()
    for record in repeated:
        read.insert(data.draw(st.integers(0, len(read))), record)
    rows, seen = Rows(), [0, 0, 0]
    for message in read:
        folding.fold(rows, folding.Event("id", events.at(0), message))
        if (row := rows.attempts.get("p1-uid")) is not None:
            now = [it or 0 for it in (row.used_cpu, row.max_memory, row.used_gpu)]
            assert all(after >= before for before, after in zip(seen, now, strict=True))
            seen = now
    own = [it for it in measurements if it[4] == "n1"]
    cpu: dict[str, int] = {}
    gpu: dict[str, int] = {}
    for counter, cpu_ms, _, gpu_ms, _, sampler in own:
        cpu[counter] = max(cpu.get(counter, 0), cpu_ms)
        if gpu_ms is not None:
            gpu[sampler] = max(gpu.get(sampler, 0), gpu_ms)
    row = rows.attempts["p1-uid"]
    assert row.used_cpu == (sum(cpu.values()) if own else None)
    assert row.max_memory == (max(it[2] for it in own) if own else None)
    assert row.used_gpu == (sum(gpu.values()) if gpu else None)


def test_a_pod_with_endless_counters_stays_small() -> None:
    rows = Rows(attempts={"p1-uid": AttemptRow("p1-uid", "u", "a", "j", "t", 0, 0, 0, "p1", "")})
    rows.attempts["p1-uid"].node = "n1"
    for number in range(200):
        pod_usage.measure(rows, measured(0, used(1, counter=f"boot/{number}")))
    assert rows.attempts["p1-uid"].used_cpu == 1000 * pod_usage.MOST_COUNTERS
    assert len(rows.pod_usage["p1-uid", "n1"].counters) < 2000


async def test_a_report_compares_what_was_used_with_the_part_that_was_measured(
    store: Database,
) -> None:
    """The same with and without sums of days. The second pod was not measured."""
    last = measured(120, used(150, GIB, gpu_ms=25_000))
    await apply(store, [events.phase("Pending", 0, 1), *life(), *life("p2"), last])
    for _ in range(2):
        (found,) = await report(store, "queue")
        assert (found.cpu_seconds, found.measured_cpu_seconds) == (400, 200)
        assert found.used_cpu_seconds == pytest.approx(150)
        assert found.measured_memory_gib_seconds == 400
        assert found.used_memory_gib_seconds == pytest.approx(100)
        assert (found.gpu_seconds, found.measured_gpu_seconds) == (200, 100)
        assert found.used_gpu_seconds == pytest.approx(25)
        await add_all(store)


async def test_what_was_used_is_spread_over_the_time_of_an_attempt(store: Database) -> None:
    """Half of the attempt is after midnight; another one runs still."""
    midnight = 12 * 3600
    await apply(
        store,
        [
            events.phase("Pending", 0, 1),
            *life(begin=midnight - 60),
            measured(midnight + 60, used(100)),
            *life("p2", begin=midnight - 60)[:3],
            measured(midnight + 60, used(30, pod="p2")),
        ],
    )
    for _ in range(2):
        query = accounting.UsageQuery(since=events.at(0), until=events.at(midnight), by=("queue",))
        (found,) = (await usage.report(store, query, events.at(midnight + 50))).usage
        assert found.used_cpu_seconds == pytest.approx(50 + 15)
        by_day = await report(store, "day", until=midnight + 50)
        assert sum(it.used_cpu_seconds for it in by_day) == pytest.approx(
            100 + 30 * 100 / (30 * 86_400 - midnight + 50)
        )
        await add_all(store)


async def test_a_measurement_that_is_read_after_the_sums_corrects_them(store: Database) -> None:
    await apply(store, [events.phase("Pending", 0, 1), *life()])
    await add_all(store)
    (before,) = await report(store, "queue")
    assert (before.used_cpu_seconds, before.measured_cpu_seconds) == (0, 0)
    await apply(store, [measured(120, used(150))])
    for _ in range(2):
        (found,) = await report(store, "queue")
        assert found.used_cpu_seconds == pytest.approx(150)
        assert (found.cpu_seconds, found.measured_cpu_seconds) == (200, 200)
        await add_all(store)


async def test_measurements_expire_and_attempts_keep_what_they_used(store: Database) -> None:
    await apply(store, [*life(), measured(120, used(150))])
    assert await retention.delete_expired(store, "pod_usage", micros(events.at(121))) == 1
    assert values((await attempts(store))["p1"])[0] == 150.0


async def test_a_migration_back_and_forward_keeps_everything_but_measurements(
    store: Database,
) -> None:
    await apply(store, [events.phase("Pending", 0, 1), *life(), measured(120, used(150))])
    await add_all(store)
    async with store.transaction() as connection:
        await connection.run_sync(lambda it: database.downgrade(it, "0011"))
        row = (await connection.execute(sa.text("SELECT cpu, attempts FROM daily_usage"))).one()
    assert tuple(row) == (200_000.0, 1.0)
    await store.migrate()
    (found,) = await report(store, "queue")
    assert (found.cpu_seconds, found.used_cpu_seconds, found.measured_cpu_seconds) == (200, 0, 0)
    await apply(store, [measured(130, used(160))])
    for _ in range(2):
        (found,) = await report(store, "queue")
        assert (found.cpu_seconds, found.attempts) == (200, 1)
        assert found.used_cpu_seconds == pytest.approx(160)
        await add_all(store)


def test_the_history_reads_the_topic() -> None:
    assert topics.POD_USAGE in folding.READ
