"""Reservations: overlaps are rejected, probable mistakes cause warnings, and a job may name only a
reservation that its submitter may use."""

from typing import Any

import httpx
import msgspec
import pytest

from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.jobspec.validation.queueing import permissions
from stromboli.shared.jobspec.validation.queueing import reservations as rules
from stromboli.testkit import builders
from stromboli.testkit.admission_cases import manifests

ANN = permissions.Submitter("ann", ("physics",))


def decoded(**spec: Any) -> Any:
    made = manifests.reservation(**{"users": ["ann"], **spec})
    return kinds.ADVANCE_RESERVATIONS.decode(msgspec.json.encode(made))


NODES = [
    builders.make_node("n1", labels={"rack": "a"}),
    builders.make_node("n2", labels={"rack": "a"}),
    builders.make_node("n3", labels={"rack": "b"}),
]


@pytest.mark.parametrize(
    ("other", "nodes"),
    [
        ({}, "n1"),
        ({"nodeNames": ["n2", "n1"]}, "n1"),
        ({"nodeNames": ["n2"]}, None),
        ({"nodeNames": None, "allNodes": True}, "n1"),
        ({"nodeNames": None, "nodeSelector": {"rack": "a"}}, "n1"),
        ({"nodeNames": None, "nodeSelector": {"rack": "b"}}, None),
        ({"startTime": "2026-12-01T12:00:00Z", "endTime": "2026-12-01T13:00:00Z"}, None),
        ({"startTime": "2026-12-01T07:00:00Z", "endTime": "2026-12-01T08:00:00Z"}, None),
        ({"startTime": "2026-12-01T11:59:59Z", "endTime": "2026-12-02T13:00:00Z"}, "n1"),
        ({"users": None, "maintenance": True}, "n1"),
        ({"endTime": None}, None),
    ],
)
def test_two_reservations_may_not_have_a_node_at_the_same_time(
    other: dict[str, Any], nodes: str | None
) -> None:
    known = {"other": decoded(name="other", **other)}
    violations = list(rules.violations(decoded(), known, NODES))
    reasons = [f"overlaps AdvanceReservation other on {nodes}"] if nodes else []
    assert [each.reason for each in violations] == reasons
    itself = {"course": decoded(**other)}
    assert not list(rules.violations(decoded(), itself, NODES))


def test_many_shared_nodes_are_counted() -> None:
    nodes = [builders.make_node(f"n{at}") for at in range(10)]
    everywhere: dict[str, Any] = {"nodeNames": None, "allNodes": True}
    (violation,) = rules.violations(
        decoded(**everywhere), {"other": decoded(name="other", **everywhere)}, nodes
    )
    assert violation.reason.endswith("on n0, n1, n2 and 7 more")


def test_maintenance_may_overlap_other_reservations() -> None:
    made = decoded(users=None, maintenance=True)
    assert not list(rules.violations(made, {"other": decoded(name="other")}, NODES))


def test_nodes_that_do_not_exist_are_warned_about() -> None:
    assert list(rules.warnings(decoded(nodeNames=["n1", "n9"]), NODES)) == [
        "spec.nodeNames: there is no node n9"
    ]
    labelled = decoded(nodeNames=None, nodeSelector={"rack": "z"})
    assert list(rules.warnings(labelled, NODES)) == [
        "spec.nodeSelector: no node has these labels now"
    ]
    assert not list(rules.warnings(decoded(), NODES))


@pytest.mark.parametrize(
    ("spec", "may"),
    [
        ({"users": ["ann"]}, True),
        ({"users": ["bob"]}, False),
        ({"users": ["bob"], "groups": ["physics"]}, True),
        ({"users": None, "namespaces": ["default"]}, True),
        ({"users": None, "queues": ["default"]}, True),
        ({"users": None, "queues": ["other"]}, False),
    ],
)
def test_a_job_may_name_only_a_reservation_that_its_submitter_may_use(
    spec: dict[str, Any], may: bool
) -> None:
    metadata = builders.make_meta(
        "job", "a", "default", annotations={keys.RESERVATION: "course", keys.USER: "bob"}
    )
    known = {"course": decoded(**spec)}
    violations = list(rules.of_job(metadata, "default", known, ANN))
    assert [each.path for each in violations] == ([] if may else [rules.PATH])
    assert not list(rules.of_job(metadata, "default", {}, ANN)), "it may be created later"
    assert list(rules.warnings_of_job(metadata, {})) == [
        f"{rules.PATH}: AdvanceReservation course does not exist; the job waits for it"
    ]


async def test_reservations_are_applied_listed_shown_and_deleted(
    client: httpx.AsyncClient, cluster: EmbeddedCluster
) -> None:
    node = manifests.bare_object(kinds.NODES, "n1")
    await cluster.create(kinds.NODES, "", msgspec.json.encode(node))
    made = manifests.reservation(users=["ann"], nodeNames=["n1", "n9"])
    answer = await client.post("/v1/apply", json={"objects": [made]})
    assert answer.status_code == 200, answer.text
    (applied,) = answer.json()
    assert applied["warnings"] == ["spec.nodeNames: there is no node n9"]
    other = manifests.reservation(name="other", queues=["default"])
    refused = await client.post("/v1/apply", json={"objects": [other]})
    assert refused.status_code == 422
    assert "overlaps AdvanceReservation course on n1" in refused.text
    path = "/v1/advancereservations"
    listed = (await client.get(path)).json()["items"]
    assert [each["metadata"]["name"] for each in listed] == ["course"]
    assert (await client.get(f"{path}/course")).json()["spec"]["users"] == ["ann"]
    assert (await client.delete(f"{path}/course")).status_code == 204
    assert (await client.get(f"{path}/course")).status_code == 404
