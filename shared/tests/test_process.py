"""The life of a service's process."""

import subprocess
import sys
import time

SCRIPT = """
import time
import msgspec
from stromboli.shared import process
from stromboli.shared.runtime import telemetry

class Settings(msgspec.Struct, frozen=True, kw_only=True):
    pass

async def main(settings, health):
    with telemetry.span("reconcile Job"):
        pass
    print(time.monotonic())

process.start("controller", Settings, main)
"""
NO_COLLECTOR = "http://127.0.0.1:9"
ENDED_WITHIN_S = 8.0
"""The exporter alone retries for 10 s, after which a container engine kills the process."""


def test_a_collector_that_is_away_does_not_hold_up_the_end_of_a_process() -> None:
    """Compose stops services and collector at the same time. Against a process without a
    collector, because on a busy machine the end of any process takes seconds. A machine that stops
    for seconds delays one end; the exporter delays each."""
    longest_s = ended_after_s({}) + ENDED_WITHIN_S
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": NO_COLLECTOR}
    assert any(ended_after_s(away) < longest_s for _ in range(3))


def ended_after_s(environment: dict[str, str]) -> float:
    """Seconds from the last step of the service to the end of its process."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return time.monotonic() - float(done.stdout)
