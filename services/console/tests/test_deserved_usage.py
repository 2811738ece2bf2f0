"""Usage of queues against what they deserved."""

from stromboli.console.core import deserved_usage
from stromboli.shared.api.views import accounting

HOUR = 3600.0


def share(gpu_hours: float, of: float, cpu: float = 0.0) -> accounting.QueueShare:
    return accounting.QueueShare(
        queue="a",
        depth=1,
        cpu_seconds=HOUR,
        gpu_seconds=gpu_hours * HOUR,
        deserved_cpu_seconds=cpu * HOUR,
        deserved_gpu_seconds=of * HOUR,
    )


def test_usage_is_shown_as_a_part_of_the_share() -> None:
    (queue_usage,) = deserved_usage.rows([share(48.0, of=192.0)])
    (gauge,) = queue_usage.gauges
    assert (queue_usage.name, queue_usage.depth) == ("a", 1)
    assert (gauge.used, gauge.deserved, gauge.borrowed) == ("48.00 (25 %)", "192.00", "")
    assert (gauge.percent, gauge.deserved_percent, gauge.is_over) == (25.0, 100.0, False)


def test_what_is_beyond_the_share_was_borrowed() -> None:
    (queue_usage,) = deserved_usage.rows([share(192.0, of=96.0)])
    (gauge,) = queue_usage.gauges
    assert (gauge.is_over, gauge.borrowed) == (True, "96.00")
    assert (gauge.percent, gauge.deserved_percent) == (100.0, 50.0)


def test_a_resource_without_a_share_has_no_gauge() -> None:
    (queue_usage,) = deserved_usage.rows([share(0.0, of=0.0, cpu=2.0)])
    assert [(it.resource, it.used) for it in queue_usage.gauges] == [("CPU hours", "1.00 (50 %)")]
