"""Pods created with their nodes, on a real API server with KWOK nodes, by counting its requests."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bench import latency, observer
from bench.bulk_client import BIND, Client
from stromboli.testkit import real_system

pytestmark = [pytest.mark.real, pytest.mark.timeout(420)]
GANGS, PODS = 2, 50
CREATE, EVENT = ("POST", "pods"), " events"
ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
NAME, WHY = "no-node-names", "nodeName is not allowed"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}
EXPRESSION = "!has(object.spec.nodeName) || (has(request.dryRun) && request.dryRun)"


async def deny_node_names(client: Client) -> None:
    """Reject pods that name a node, except in dry runs, and wait until that is enforced."""
    spec: dict[str, Any] = {
        "matchConstraints": {"resourceRules": [RULE]},
        "validations": [{"expression": EXPRESSION, "message": WHY}],
    }
    await client.create(ADMISSION, {"metadata": {"name": NAME}, "spec": spec})
    binding = {"policyName": NAME, "validationActions": ["Deny"]}
    await client.create(BINDINGS, {"metadata": {"name": NAME}, "spec": binding})
    for attempt in range(100):
        container = {"name": "c", "image": "i"}
        pod = {
            "metadata": {"name": f"try-{attempt}"},
            "spec": {"nodeName": "nowhere", "containers": [container]},
        }
        try:
            await client.create(observer.PODS, pod)
        except RuntimeError as error:
            assert WHY in str(error)  # noqa: PT017 - the policy is enforced
            return
        await asyncio.sleep(0.2)
    raise AssertionError("the policy is not enforced")


async def run(client: Client, names: list[str]) -> Any:
    """Submit gangs, wait until all pods have nodes, and return what was requested."""
    version, before = await client.version(), await client.requests()
    async with asyncio.timeout(200), asyncio.TaskGroup() as group:
        watching = group.create_task(client.bound(version, dict.fromkeys(names, PODS)))
        for name in names:
            await client.create(observer.JOBS, latency.job(name, PODS))
        await watching
    return await client.requests() - before


async def test_a_gang_costs_one_request_per_pod_unless_a_policy_denies_nodes(
    tmp_path: Path,
) -> None:
    async with (
        real_system.RealSystem(tmp_path, fake_nodes=20) as system,
        Client(system.parts) as client,
    ):
        requested = await run(client, [f"g{number}" for number in range(GANGS)])
        assert requested[BIND] == 0, requested
        # And dry runs: gangs with equal pods share one, unless they are planned at the same time.
        assert 1 <= requested[CREATE] - GANGS * PODS <= GANGS, requested
        others = {what: count for what, count in requested.items() if "events" not in what[1]}
        assert sum(others.values()) <= 1.3 * GANGS * PODS, requested

        await deny_node_names(client)
        requested = await run(client, ["denied"])
        assert requested[BIND] == PODS, requested
        job = json.loads(await client.get(f"{observer.JOBS}/denied"))
        assert job["status"].get("retryCount", 0) == 0
