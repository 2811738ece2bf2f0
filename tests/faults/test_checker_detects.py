"""The checkers can turn red: services without some of their rules break promises, and the checkers
name each of them. Everything is on real parts, as in the tests that rely on the checkers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stromboli.testkit.checkers import gang_atomicity
from tests.faults.support import meddling, workload
from tests.faults.support.observed_system import ObservedSystem
from tests.faults.support.variant import replacing, stopped

pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]

JOBS = 4
WITHIN_S = 90.0


async def test_random_pod_names_are_detected_as_duplicates_after_a_kill(
    live_system: ObservedSystem, tmp_path: Path
) -> None:
    """The checker finds no violation until the process is killed, and then names the duplicates."""
    namespace = await live_system.enter("rule-off")
    url, rng = live_system.system.url, random.Random("rule-off")
    controller = live_system.system.services["controller"]
    try:
        async with replacing(controller, "random_name_controller", tmp_path) as random_names:
            await workload.submit(url, namespace, workload.jobs(rng, JOBS))
            await live_system.all_end(namespace, JOBS, WITHIN_S)
            assert live_system.broken(namespace) == []

            await workload.submit(url, namespace, [workload.long_job("long")])
            await live_system.history.until(lambda: _running(live_system, namespace) == 1, WITHIN_S)
            assert _duplicate_pods(live_system, namespace) == []
            await random_names.kill()
            await random_names.start()
            await live_system.history.until(
                lambda: bool(_duplicate_pods(live_system, namespace)), WITHIN_S
            )
    finally:
        await _delete_jobs(live_system, namespace, ["long"])


async def test_a_scheduler_that_splits_gangs_and_overcommits_nodes_is_detected(
    live_system: ObservedSystem, tmp_path: Path
) -> None:
    """One pod of a gang runs alone for longer than it may, beside pods that share a node's CPUs."""
    namespace = await live_system.enter("careless-scheduler")
    scheduler = live_system.system.services["scheduler"]
    names = ["split", *(f"wide-{number}" for number in range(workload.NODES + 1))]
    run_s = gang_atomicity.WITHIN_S + 2
    wide = [workload.single_job(name, cpus=3, run_s=run_s) for name in names[1:]]
    try:
        async with replacing(scheduler, "careless_scheduler", tmp_path):
            gang = workload.gang("split", pods=3, run_s=run_s)
            await workload.submit(live_system.system.url, namespace, [gang, *wide])
            await _named(
                live_system,
                namespace,
                "pod split-main-0 runs by a decision for 1 of 3 pods",
                f"job split has had 1 of 3 pods for more than {gang_atomicity.WITHIN_S:g} s",
                "job split has 1 of 3 pods bound",
                " cpu of 4",
                "job split is Pending, not finished",
            )
    finally:
        await _delete_jobs(live_system, namespace, names)


async def test_a_controller_that_ignores_flows_claims_and_tasks_is_detected(
    live_system: ObservedSystem, tmp_path: Path
) -> None:
    namespace = await live_system.enter("careless-controller")
    controller = live_system.system.services["controller"]
    async with replacing(controller, "careless_controller", tmp_path):
        await live_system.submit_every_kind(namespace, [])
        await _named(
            live_system,
            namespace,
            "flow flow created job flow-second before flow-first had completed",
            "job completing completed when 0 of 1 pods of task main had succeeded",
            "was bound before its claim disk-pvc-",
            "was bound before its claim device was reserved for it",
            "claims for 1 volumes",
        )
    await _delete_jobs(
        live_system, namespace, [it["metadata"]["name"] for it in workload.of_every_kind()]
    )


async def test_what_other_clients_do_to_jobs_is_detected(live_system: ObservedSystem) -> None:
    """Someone restarts a job, completes one that runs, deletes one of a flow, binds a pod, adds a
    pod of another version, and claims a volume twice."""
    namespace = await live_system.enter("meddling")
    controller = live_system.system.services["controller"]
    names = ["restarted", "completed", "copied"]
    selected = workload.single_job("bound", cpus=1, run_s=3600)
    selected["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"] = {"is": "nowhere"}
    long = [workload.single_job(name, cpus=1, run_s=3600) for name in names]
    await workload.submit(live_system.system.url, namespace, [*long, selected])
    await workload.apply(live_system.system.url, workload.flow(namespace, run_s=3600))
    pods = ["completed-main-0", "copied-main-0", "bound-main-0"]
    await live_system.history.until(
        lambda: (
            _running(live_system, namespace) >= len(names)
            and {*pods} <= _objects(live_system, "Pod", namespace).keys()
            and "flow-first" in _objects(live_system, "Job", namespace)
        ),
        WITHIN_S,
    )
    jobs, pod = (_objects(live_system, kind, namespace) for kind in ("Job", "Pod"))
    try:
        async with live_system.system.parts.client() as api:
            await meddling.delete_job(api, jobs["flow-first"])
            await meddling.restart(api, jobs["restarted"])
            await meddling.copy_to_next_version(api, pod["copied-main-0"])
            await meddling.bind(api, pod["bound-main-0"], pod["copied-main-0"]["spec"]["nodeName"])
            await meddling.claim_volume_twice(api, namespace, "one-volume")
        await _named(
            live_system,
            namespace,
            "Job flow-first was deleted, but not by a user",
            "flow flow created job flow-first 2 times",
            "Pod restarted-main-0 was deleted, but neither by a user nor by a policy",
            "job restarted was retried and no pod of its version 0 had failed",
            "job restarted was retried 1 times",
            "job copied has pods of versions 0 and 1 on nodes",
            "pod bound-main-0 runs and was bound by no decision",
            "one-volume is given to claims meddling/twice-0 and meddling/twice-1",
        )
        # The controller would delete the pods of a completed job.
        async with stopped(controller), live_system.system.parts.client() as api:
            await meddling.complete(api, jobs["completed"])
            await _named(live_system, namespace, "pod completed-main-0 outlives job completed")
    finally:
        async with live_system.system.parts.client() as api:
            await meddling.delete_flow(api, _objects(live_system, "JobFlow", namespace)["flow"])
        await _delete_jobs(live_system, namespace, [*names, "bound"])


async def _named(live_system: ObservedSystem, namespace: str, *lines: str) -> None:
    """Return once the checkers have said each of these."""

    def missing() -> list[str]:
        said = live_system.broken(namespace)
        return [line for line in lines if not any(line in each for each in said)]

    try:
        await live_system.history.until(lambda: not missing(), WITHIN_S)
    except TimeoutError:
        said = live_system.broken(namespace)
        raise AssertionError(f"not said: {missing()}, but {said}") from None


async def _delete_jobs(live_system: ObservedSystem, namespace: str, names: Sequence[str]) -> None:
    for name in names:
        await workload.delete(live_system.system.url, namespace, name)
    await live_system.history.until(
        lambda: not {it["metadata"]["name"] for it in live_system.jobs(namespace)} & {*names},
        WITHIN_S,
    )


def _objects(live_system: ObservedSystem, kind: str, namespace: str) -> dict[str, Any]:
    found = live_system.history.objects(kind, namespace)
    return {it["metadata"]["name"]: it for it in found}


def _running(live_system: ObservedSystem, namespace: str) -> int:
    return sum(workload.phase(job) == "Running" for job in live_system.jobs(namespace))


def _duplicate_pods(live_system: ObservedSystem, namespace: str) -> list[str]:
    return [line for line in live_system.broken(namespace) if " are both " in line]
