"""No HTTP request makes admission answer with 5xx, cost a second, or delay ``/livez`` by one."""

from pathlib import Path

import pytest

from stromboli.testkit import cpu_time
from tests.fuzz import engine, http_admission, mutations


@pytest.fixture(autouse=True)
def frozen_objects() -> None:
    cpu_time.freeze_objects()


@pytest.mark.timeout(engine.TIMEOUT_S)
@pytest.mark.parametrize("name", ["REST", "webhooks"])
def test_no_request_fails_or_blocks_the_server(name: str, tmp_path: Path) -> None:
    """``STROM_FUZZ_S`` seconds for each server; the short form sends a few hundred requests."""
    slowest_s = []
    for number in range(1 + engine.CONFIRMATIONS):
        folder = tmp_path / str(number)
        folder.mkdir()
        slowest_s.append(slowest_probe_s(name, folder))
        if slowest_s[-1] < engine.LONGEST_S:
            break
    assert 0 < min(slowest_s) < engine.LONGEST_S


def slowest_probe_s(name: str, folder: Path) -> float:
    """Send all inputs; the longest CPU time of the process during a probe."""
    with http_admission.target(folder, name) as (served, send, corpus):
        inputs = len(corpus) + engine.INPUTS
        result = engine.run(f"HTTP {name}", corpus, send, mutations.of_json, inputs=inputs)
        engine.report(result)
        answered = {outcome for outcome in result.outcomes if outcome != "0"}
        assert "200" in answered
        assert any(outcome.startswith("4") for outcome in answered)
    assert served.failed_probes == 0
    engine.report(engine.Result(f"/livez beside {name}", longest_s=served.slowest_probe_s))
    return served.slowest_probe_s
