"""Loads of disks and network interfaces: from counters of /sys to a report."""

from pathlib import Path

import pytest

from stromboli.monitor.agent import io_counters
from stromboli.monitor.core import io_load
from stromboli.shared.messages import node_usage
from stromboli.testkit.doubles import recorded_machines

GBIT = "1000"


def disk(busy_ms: int, read: int = 0, written: int = 0) -> io_load.Counters:
    return io_load.Counters(read, written, busy_ms)


def interface(received: int, sent: int, bytes_per_s: int = 100) -> io_load.Counters:
    return io_load.Counters(received, sent, bytes_per_s=bytes_per_s)


def measured(*samples: io_load.Sample) -> node_usage.NodeLoad:
    meter = io_load.LoadMeter()
    for sample in samples:
        meter.add(sample)
    return meter.usage()


def test_the_load_of_disks_is_that_of_the_busiest_one() -> None:
    """Pods on a node that wait for one disk do not care that others are idle."""
    node_load = measured(
        io_load.Sample(0.0, {"sda": disk(500, 10, 20), "sdb": disk(0)}),
        io_load.Sample(20.0, {"sda": disk(15_500, 210, 40), "sdb": disk(100, 200)}),
    )
    assert node_load == node_usage.NodeLoad(
        window_s=20,
        disk=node_usage.DeviceLoad(busiest="sda", percent=75, in_bytes_per_s=20, out_bytes_per_s=1),
    )


def test_the_load_of_an_interface_is_its_busier_direction() -> None:
    node_load = measured(
        io_load.Sample(0.0, {}, {"eth0": interface(0, 0)}),
        io_load.Sample(20.0, {}, {"eth0": interface(400, 1_200)}),
    )
    assert node_load.network == node_usage.DeviceLoad(
        busiest="eth0", percent=60, in_bytes_per_s=20, out_bytes_per_s=60
    )


def test_a_link_without_a_speed_has_no_load() -> None:
    """Virtual machines state none: half of an unknown speed is unknown, not zero."""
    node_load = measured(
        io_load.Sample(0.0, {}, {"eth0": interface(0, 0, 0)}),
        io_load.Sample(20.0, {}, {"eth0": interface(400, 400, 0)}),
    )
    assert node_load.network is None


@pytest.mark.parametrize(
    "samples",
    [
        (),
        (io_load.Sample(0.0, {"sda": disk(0)}),),
        (io_load.Sample(0.0, {"sda": disk(0)}), io_load.Sample(5.0, {"sda": disk(5_000)})),
        (io_load.Sample(0.0, {"sda": disk(9)}), io_load.Sample(20.0, {"sda": disk(0)})),
        (io_load.Sample(0.0, {"sda": disk(0)}), io_load.Sample(20.0, {"sdb": disk(0)})),
        (io_load.Sample(0.0, {"sda": disk(0)}), io_load.Sample(500.0, {"sda": disk(0)})),
    ],
    ids=["none", "one", "too short", "counter went back", "another disk", "suspended"],
)
def test_a_load_that_was_not_measured_is_unknown(samples: tuple[io_load.Sample, ...]) -> None:
    assert measured(*samples).disk is None


def test_a_load_is_the_average_of_the_last_minute() -> None:
    """Memory is bounded, and the busy hour before is forgotten."""
    meter = io_load.LoadMeter()
    for step in range(1000):
        busy_ms = min(step, 900) * 10_000
        meter.add(io_load.Sample(step * io_load.SAMPLE_EVERY_S, {"sda": disk(busy_ms)}))
    node_load = meter.usage()
    assert (node_load.window_s, node_load.disk) == (
        60,
        node_usage.DeviceLoad(busiest="sda", percent=0),
    )
    assert not meter.is_due(9_995.0)
    assert meter.is_due(10_000.0)


def test_small_changes_are_no_news() -> None:
    def usage(percent: int | None) -> node_usage.NodeLoad:
        load = None if percent is None else node_usage.DeviceLoad(busiest="sda", percent=percent)
        return node_usage.NodeLoad(window_s=60, disk=load)

    assert io_load.is_news(None, usage(None))
    assert not io_load.is_news(usage(50), usage(59))
    assert io_load.is_news(usage(50), usage(60))
    assert io_load.is_news(usage(50), usage(None))
    assert io_load.is_news(usage(None), usage(0))


def test_only_devices_of_hardware_are_read(tmp_path: Path) -> None:
    """A loop device or a bridge repeats what the devices below it do. The speed of an interface
    that is down cannot be read."""
    stat = "100 0 2000 50 10 0 400 20 0 1234 70"
    for path, text in {
        "block/sda/stat": stat,
        "block/sda/device/model": "disk",
        "block/loop0/stat": stat,
        "block/sdb/stat": "garbage",
        "block/sdb/device/model": "disk",
        "class/net/eth0/statistics/rx_bytes": "7\n",
        "class/net/eth0/statistics/tx_bytes": "8\n",
        "class/net/eth0/speed": "-1\n",
        "class/net/eth0/device/vendor": "x",
        "class/net/eth1/statistics/rx_bytes": "1\n",
        "class/net/eth1/statistics/tx_bytes": "2\n",
        "class/net/eth1/speed": GBIT,
        "class/net/eth1/device/vendor": "x",
        "class/net/veth0/statistics/rx_bytes": "1\n",
    }.items():
        recorded_machines.put(tmp_path / path, text)
    assert io_counters.read(tmp_path, 3.0) == io_load.Sample(
        3.0,
        {"sda": io_load.Counters(2000 * 512, 400 * 512, 1234)},
        {
            "eth0": io_load.Counters(7, 8),
            "eth1": io_load.Counters(1, 2, bytes_per_s=125_000_000),
        },
    )
    assert io_counters.read(tmp_path / "nothing", 3.0) == io_load.Sample(3.0)


def test_this_machine_is_read_whatever_it_is() -> None:
    io_counters.read(Path("/sys"), 0.0)
