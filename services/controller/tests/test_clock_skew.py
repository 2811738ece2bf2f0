"""The controller's host and the API server have different clocks: times since an object's creation
are measured by the API server's."""

from datetime import timedelta
from pathlib import Path

import pytest

from services.controller.tests.support import service_harness
from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import enqueued
from stromboli.controller.core.store import controller_cache
from stromboli.shared.api import batch, kinds
from stromboli.testkit.builders import NOON, make_command, make_job

SKEW = timedelta(minutes=10)


def job_with_timeout(name: str, timeout: str) -> batch.Job:
    policy = batch.LifecyclePolicy(event="PodPending", action="RestartJob", timeout=timeout)
    return make_job(name, policies=[policy])


@pytest.mark.parametrize("ahead", [SKEW, -SKEW])
async def test_a_pending_pod_waits_for_the_timeout_of_its_policy_with_any_clock(
    tmp_path: Path, ahead: timedelta
) -> None:
    async with service_harness.set_up(tmp_path, None) as harness:
        harness.ahead = ahead
        async with harness.controller():
            for name, timeout in (("long", "60s"), ("short", "1s")):
                await harness.submit(job_with_timeout(name, timeout))
                await harness.answer(await harness.enqueue(await harness.group(f"default/{name}")))
            await harness.until(kinds.JOBS, "default/short", lambda job: job.status.retry_count > 0)
            waiting = await harness.until(kinds.JOBS, "default/long", lambda job: True)
    assert waiting.status.retry_count == 0


@pytest.mark.parametrize("ahead", [SKEW, -SKEW])
async def test_a_new_leader_uses_the_api_servers_clock_before_it_creates_an_object(
    tmp_path: Path, ahead: timedelta
) -> None:
    """Else its first decisions end or delay every timeout by the difference of the clocks."""
    async with service_harness.set_up(tmp_path, None) as harness:
        async with harness.controller():
            for name, timeout in (("long", "60s"), ("short", "2s")):
                await harness.submit(job_with_timeout(name, timeout))
                await harness.answer(await harness.enqueue(await harness.group(f"default/{name}")))
                await harness.until(kinds.PODS, f"default/{name}-worker-0", lambda pod: True)
        harness.ahead = ahead
        async with harness.controller():
            await harness.until(kinds.JOBS, "default/short", lambda job: job.status.retry_count > 0)
            waiting = await harness.until(kinds.JOBS, "default/long", lambda job: True)
    assert waiting.status.retry_count == 0


def with_fast_host() -> CoreHarness:
    """A pending pod that was just created by a clock that is behind the controller's."""
    harness = enqueued(job_with_timeout("j1", "60s"))
    harness.cache.api_clock.observe(NOON - SKEW, NOON)
    body = harness.objects["pods", "default/j1-worker-0"]
    body["metadata"]["creationTimestamp"] = (NOON - SKEW).isoformat()
    harness.put(kinds.PODS, body)
    harness.settle()
    return harness


def test_a_job_is_reconciled_when_its_pod_has_been_pending_for_long_enough() -> None:
    harness = with_fast_host()
    assert harness.phase() == "Pending"
    item = controller_cache.ReconcileKey("job", "default/j1")
    assert harness.due(item) == NOON + timedelta(seconds=60)
    harness.wait(60)
    harness.settle()
    assert harness.phase() == "Restarting"


def test_a_command_waits_for_its_target_by_the_api_servers_clock() -> None:
    """Else a fast host refuses each command that it observes before its job."""
    harness = with_fast_host()
    harness.submit(make_command("c1", "AbortJob", make_job("late")))
    body = harness.objects["commands", "default/c1"]
    body["metadata"]["creationTimestamp"] = (NOON - SKEW).isoformat()
    harness.put(kinds.COMMANDS, body)
    harness.settle()
    assert ("commands", "default/c1") in harness.objects
    harness.wait(30)
    harness.settle()
    assert ("commands", "default/c1") not in harness.objects
