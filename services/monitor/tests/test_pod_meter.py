"""When pods are read and reported, and what is reported of them."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from stromboli.monitor.core import gpu_holders, pod_meter
from stromboli.shared.messages import node_topology, node_usage

MIB = 2**20


def reading(cpu_ms: int, memory: int = MIB, counter: str = "boot/1") -> pod_meter.Reading:
    return pod_meter.Reading(counter, cpu_ms, memory)


def reported(meter: pod_meter.PodMeter, now_s: float) -> dict[str, node_usage.PodUsage]:
    """The pods that are due, after the monitor has acknowledged them."""
    due = meter.due(now_s)
    if due:
        meter.sent(now_s)
        meter.acknowledged(due, now_s)
    return {it.pod_uid: it for it in due}


def lived(*cpu_ms: int) -> pod_meter.PodMeter:
    """A pod that was read each second, and has ended then."""
    meter = pod_meter.PodMeter()
    for second, value in enumerate(cpu_ms):
        assert meter.observe(["p"], float(second)) == ["p"]
        meter.read({"p": reading(value)}, float(second))
    meter.observe([], float(len(cpu_ms)))
    return meter


def test_a_pod_that_is_shorter_than_the_interval_is_reported_with_its_last_values() -> None:
    meter = lived(100, 900)
    assert reported(meter, 2.0)["p"].cpu_ms == 900
    assert reported(meter, 100.0) == {}


def test_a_pod_that_ended_unread_has_no_values() -> None:
    meter = pod_meter.PodMeter()
    meter.observe(["p"], 0.0)
    meter.observe([], 1.0)
    assert meter.due(100.0) == ()


def test_values_that_the_monitor_has_not_acknowledged_are_reported_again() -> None:
    meter = lived(100)
    for second in (2.0, 12.0):
        assert [it.cpu_ms for it in meter.due(second)] == [100]
        meter.sent(second)
    assert meter.due(13.0) == ()  # not before the next interval
    assert reported(meter, 22.0)["p"].cpu_ms == 100


def test_a_running_pod_is_reported_at_growing_intervals() -> None:
    meter, times = pod_meter.PodMeter(), []
    for second in range(3600):
        for uid in meter.observe(["p"], float(second)):
            meter.read({uid: reading(second)}, float(second))
        if reported(meter, float(second)):
            times.append(second)
    gaps = [after - before for before, after in zip([0, *times], times, strict=False)]
    assert gaps[0] == 30
    assert gaps == sorted(gaps)
    assert max(gaps) <= 600 + pod_meter.SEND_EVERY_S
    assert len(times) < 20


def test_a_young_pod_is_read_more_often_than_an_old_one() -> None:
    meter, read = pod_meter.PodMeter(), []
    for second in range(200):
        for uid in meter.observe(["p"], float(second)):
            meter.read({uid: reading(second)}, float(second))
            read.append(second)
    assert read[:10] == list(range(10))
    assert read[-1] - read[-2] == 10


def test_an_idle_pod_is_reported_once() -> None:
    meter = pod_meter.PodMeter()
    found = []
    for second in range(0, 1000, 10):
        meter.observe(["p"], float(second))
        meter.read({"p": reading(5)}, float(second))
        found += list(reported(meter, float(second)))
    assert found == ["p"]


def test_a_report_is_bounded_and_those_that_ended_come_first() -> None:
    meter = pod_meter.PodMeter()
    running, ended = ([f"{kind}{it}" for it in range(400)] for kind in ("running", "ended"))
    meter.observe([*running, *ended], 0.0)
    meter.read(dict.fromkeys([*running, *ended], reading(1)), 0.0)
    meter.observe(running, 31.0)
    first, second = reported(meter, 31.0), reported(meter, 41.0)
    assert len(first) == pod_meter.MOST_PODS
    assert set(ended) <= first.keys()
    assert first.keys() | second.keys() == {*running, *ended}


def test_while_the_monitor_is_away_only_the_latest_ended_pods_are_kept() -> None:
    meter = pod_meter.PodMeter()
    for number in range(pod_meter.MOST_ENDED + 10):
        meter.observe([f"p{number}"], float(number))
        meter.read({f"p{number}": reading(1)}, float(number))
    meter.observe([], 1e6)
    found: set[str] = set()
    for round_ in range(20):
        found |= reported(meter, 2e6 + 10.0 * round_).keys()
    assert len(found) == pod_meter.MOST_ENDED
    assert "p0" not in found


def test_an_agent_that_stops_reports_everything_that_is_new() -> None:
    meter = pod_meter.PodMeter()
    meter.observe(["p"], 0.0)
    meter.read({"p": reading(7)}, 0.0)
    assert meter.due(1.0) == ()
    meter.close()
    assert reported(meter, 1.0)["p"].cpu_ms == 7


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 10**9), st.integers(0, 10**12)), min_size=1
    )
)
def test_values_of_a_counter_never_decrease(steps: list[tuple[int, int, int]]) -> None:
    meter = pod_meter.PodMeter()
    pod_usages: dict[str, node_usage.PodUsage] = {}
    for second, (counter, cpu_ms, memory) in enumerate(steps):
        meter.observe(["p"], 1000.0 * second)
        meter.read({"p": reading(cpu_ms, memory, f"c{counter}")}, 1000.0 * second)
        (pod_usage,) = reported(meter, 1000.0 * second).values() or [None]
        if pod_usage is None:
            continue
        before = pod_usages.get("p")
        if before is not None:
            assert pod_usage.max_memory_bytes >= before.max_memory_bytes
            if before.counter == pod_usage.counter:
                assert pod_usage.cpu_ms >= before.cpu_ms
        pod_usages["p"] = pod_usage


# --- GPUs ------------------------------------------------------------------------------------


def holding(pod: str, *gpus: str) -> node_topology.ExclusiveAllocation:
    device = node_topology.AllocatedDevices(resource="nvidia.com/gpu", ids=gpus)
    return node_topology.ExclusiveAllocation(namespace="a", pod=pod, devices=(device,))


def held(*allocations: node_topology.ExclusiveAllocation) -> dict[str, Iterable[str]]:
    return {name: sorted(gpus) for name, gpus in gpu_holders.whole_gpus(allocations).items()}


def test_a_gpu_counts_for_the_pod_that_holds_it_alone() -> None:
    assert held(holding("p", "GPU-1"), holding("p", "GPU-2"), holding("q", "GPU-3")) == {
        "a/p": ["GPU-1", "GPU-2"],
        "a/q": ["GPU-3"],
    }
    assert held(holding("p", "GPU-1"), holding("q", "GPU-1")) == {}
    assert held(holding("p", "GPU-1::2"), holding("q", "MIG-1")) == {}


def test_the_time_in_which_gpus_are_busy_adds_up() -> None:
    meter = pod_meter.PodMeter()
    for second in range(0, 31, 10):
        meter.observe(["p"], float(second))
        meter.read({"p": reading(second)}, float(second))
        gpu_readings = {"p": pod_meter.GpuReading(1.5, 10 * MIB - second)}
        meter.read_gpus(gpu_readings, float(second))
    usage = reported(meter, 40.0)["p"]
    assert (usage.gpu_ms, usage.max_gpu_memory_bytes) == (45_000, 10 * MIB)


def test_a_gpu_that_does_not_tell_its_load_has_an_unknown_time() -> None:
    read = {"GPU-1": pod_meter.GpuReading(0.5, 1), "GPU-2": pod_meter.GpuReading(None, 2)}
    gpu_readings = gpu_holders.readings({"p": frozenset(read), "q": frozenset({"GPU-3"})}, read)
    assert gpu_readings == {"p": pod_meter.GpuReading(None, 3)}
    meter = pod_meter.PodMeter()
    meter.observe(["p"], 0.0)
    meter.read({"p": reading(1)}, 0.0)
    meter.read_gpus(gpu_readings, 0.0)
    assert reported(meter, 40.0)["p"].gpu_ms is None
