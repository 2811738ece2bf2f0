"""The example of a consumer of events, started as a user would start it."""

import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx
import pytest

from stromboli.client import server
from tests.e2e import conftest
from tests.examples import manifests

WITHIN_S = 120.0
pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture
def reader(system: conftest.Real) -> Iterator[subprocess.Popen[str]]:
    """It follows the broker of a running system."""
    command = [sys.executable, str(manifests.FOLDER / "consumer.py"), system.kafka]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        stop = threading.Timer(WITHIN_S, process.kill)
        stop.start()
        yield process
        stop.cancel()
        process.kill()


@pytest.mark.parametrize("system", ["real"], indirect=True)
def test_the_consumer_prints_a_jobs_history(
    system: conftest.Real, reader: subprocess.Popen[str]
) -> None:
    (job,) = manifests.read("hello")
    job["metadata"]["name"] = "followed"
    with httpx.Client(**server.httpx_options(system.url, 30)) as client:
        answer = client.post("/v1/apply", json={"objects": [job]})
    assert answer.is_success, answer.text
    assert reader.stdout is not None
    phases: list[str] = []
    for line in reader.stdout:
        _, name, kind, *after = line.split()
        if name == "default/followed" and kind == "job_phase_changed":
            phases += after
            if phases[-1] == "Completed":
                break
    assert phases == ["Pending", "Running", "Completed"]
