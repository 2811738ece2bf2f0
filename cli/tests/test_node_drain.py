"""Rules of ``strom node drain``."""

from typing import Any

import msgspec
import pytest

from stromboli.cli.commands.nodes import node_maintenance
from stromboli.shared import decoding
from stromboli.shared.api import core, kinds, meta
from stromboli.testkit import builders

NODE = "n1"


def owner(kind: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "name": "o", "uid": "o", "controller": True}


def pod(name: str, *owners: str, phase: str = "Running", **annotations: str) -> core.Pod:
    made = builders.make_pod(name, node=NODE, phase=phase, labels={"app": name})
    references = tuple(decoding.convert(owner(kind), meta.OwnerReference) for kind in owners)
    metadata = msgspec.structs.replace(
        made.metadata, owner_references=references, annotations=annotations
    )
    return msgspec.structs.replace(made, metadata=metadata)


def test_a_drain_leaves_pods_of_daemon_sets_and_mirror_pods() -> None:
    mirror = pod("mirror", "Node", **{node_maintenance.MIRROR: "digest"})
    plan = node_maintenance.plan(
        [pod("task", "Job"), pod("daemon", "DaemonSet"), mirror], is_forced=False
    )
    assert ([each.metadata.name for each in plan.evicted], plan.unowned) == (["task"], ())


def test_a_drain_evicts_a_pod_that_nothing_replaces_only_with_force() -> None:
    """An ended pod without an owner loses nothing."""
    pods = [pod("bare"), pod("ended", phase="Succeeded")]
    careful = node_maintenance.plan(pods, is_forced=False)
    assert [each.metadata.name for each in careful.unowned] == ["bare"]
    assert [each.metadata.name for each in careful.evicted] == ["ended"]
    assert not node_maintenance.plan(pods, is_forced=True).unowned


@pytest.fixture
def node(api_server: Any) -> Any:
    """A node with a pod of a job; a deletion is immediate, as a pod in this state ends at once."""
    api_server.create(kinds.NODES, builders.make_node(NODE))
    return api_server


def run_pod(server: Any, found: core.Pod) -> None:
    """Create a pod on the node and set its status."""
    server.create(kinds.PODS, found)
    ready = [{"type": "Ready", "status": "True"}]
    server.set_pod_status(found.metadata.name, phase=found.status.phase, conditions=ready)


def test_a_drain_cordons_and_evicts_until_the_node_has_no_pods(node: Any, strom: Any) -> None:
    run_pod(node, pod("task", "Job"))
    run_pod(node, pod("daemon", "DaemonSet"))
    done = strom("node", "drain", NODE, "--grace-period", "0", "--timeout", "60s")
    assert (done.exit_code, done.stdout) == (
        0,
        f"node/{NODE} cordoned\npod/default/task evicted\npod/default/task is gone\n"
        f"node/{NODE} drained\n",
    ), done.stderr
    left = [kinds.metadata_of(raw).name for raw in node.all(kinds.PODS)]
    assert left == ["daemon"]
    assert "SchedulingDisabled" in strom("node", "list").stdout


def test_a_drain_waits_for_a_budget_and_names_it_at_its_timeout(node: Any, strom: Any) -> None:
    run_pod(node, pod("task", "Job"))
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "task"}}}
    document = {"metadata": {"name": "keep", "namespace": "default"}, "spec": spec}
    node.create(kinds.DISRUPTION_BUDGETS, document)
    done = strom("node", "drain", NODE, "--grace-period", "0", "--timeout", "0s")
    assert done.exit_code == 124
    assert "PodDisruptionBudget keep needs 1 healthy pods and has 1" in done.stderr
    assert "strom node uncordon n1" in done.stderr
    assert len(node.all(kinds.PODS)) == 1


def test_a_drain_without_force_evicts_no_pod_beside_one_without_an_owner(
    node: Any, strom: Any
) -> None:
    run_pod(node, pod("task", "Job"))
    run_pod(node, pod("bare"))
    refused = strom("node", "drain", NODE, "--grace-period", "0")
    assert (refused.exit_code, "pod/default/bare" in refused.stderr) == (1, True)
    assert len(node.all(kinds.PODS)) == 2
    assert strom("node", "drain", NODE, "--grace-period", "0", "--force").exit_code == 0
    assert node.all(kinds.PODS) == []


def test_a_dry_run_of_a_drain_names_the_pods_and_changes_nothing(node: Any, strom: Any) -> None:
    run_pod(node, pod("task", "Job"))
    run_pod(node, pod("daemon", "DaemonSet"))
    done = strom("node", "drain", NODE, "--dry-run")
    assert (done.exit_code, done.stdout) == (
        0,
        f"node/{NODE} cordoned (dry run)\npod/default/task evicted (dry run)\n"
        f"pod/default/daemon stays: it belongs to a DaemonSet\nnode/{NODE} drained (dry run)\n",
    ), done.stderr
    assert len(node.all(kinds.PODS)) == 2
    assert "SchedulingDisabled" not in strom("node", "list").stdout
    run_pod(node, pod("bare"))
    assert "pod/default/bare" in strom("node", "drain", NODE, "--dry-run").stderr
    assert strom("node", "drain", "absent", "--dry-run").exit_code == 1


def test_a_drain_of_an_absent_node_is_an_error(node: Any, strom: Any) -> None:
    assert strom("node", "drain", "absent").exit_code == 1
