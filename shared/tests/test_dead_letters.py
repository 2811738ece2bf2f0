"""Dead letters are counted by every service alike, so that one alert covers all of them."""

import subprocess
import sys

SCRIPT = """
from prometheus_client import generate_latest
from stromboli.shared import topics
from stromboli.shared.runtime import runtime, telemetry
from stromboli.testkit import builders

telemetry.set_up("test", {})
for offset in range(2):
    record = builders.undecodable_record(topics.PODS, "default/p", offset)
    runtime.dead_letter(record, "test", "no JSON", builders.NOON)
print(generate_latest().decode())
"""


def test_dead_letters_are_counted_by_topic() -> None:
    """In a process of its own: a process has one set of metrics."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    counted = [it for it in done.stdout.splitlines() if it.startswith("stromboli_log_dead_letters")]
    (series,) = [it for it in counted if "_total{" in it]
    assert series.endswith('topic="cluster.pods"} 2.0')
