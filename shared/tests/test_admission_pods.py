"""What an operator's resource groups and gates add to a new pod (admission reference 7)."""

from typing import Any

import pytest

from stromboli.shared import keys
from stromboli.shared.jobspec.validation import pods
from stromboli.testkit.admission_cases import manifests


def added(
    *groups: pods.ResourceGroup,
    notes: dict[str, str] | None = None,
    gates: bool = False,
    spec: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Path -> value of what a pod in namespace ``team`` gets."""
    document = manifests.pod(**(notes or {}))
    document["metadata"].pop("namespace")
    document["spec"] |= spec or {}
    all_groups = pods.ResourceGroups(resource_groups=groups, queue_gates=gates)
    return {it.path: it.value for it in pods.default_patch(document, "team", all_groups)}


def group(name: str = "batch", key: str = "", *value: str, **more: Any) -> pods.ResourceGroup:
    """A group that is seen by its scheduler's name."""
    group_object = pods.GroupObject(key=key, value=value)
    return pods.ResourceGroup(
        resource_group=name, object=group_object, **{"scheduler_name": name, **more}
    )


@pytest.mark.parametrize(
    ("resource_group", "is_of_it"),
    [
        (group("batch", "namespace", "other", "team"), True),
        (group("batch", "namespace", "other"), False),
        (group("batch", "annotation", "color: red", "size: 'big'"), True),
        (group("batch", "annotation", '"size": big'), True),
        (group("batch", "annotation", "size: small"), False),
        (group("batch", "annotation", "size"), False),
        (group("batch", "", "size: big"), True),
        (group("fast", ""), True),
        (group("batch", ""), False),
        (group("fast", "annotation"), False),
        (group("fast", "label", "size: big"), False),
    ],
)
def test_a_pod_is_of_a_group_by_its_namespace_an_annotation_or_the_groups_name(
    resource_group: pods.ResourceGroup, is_of_it: bool
) -> None:
    found = added(resource_group, notes={"size": "big", keys.RESOURCE_GROUP: "fast"})
    assert found == ({"/spec/schedulerName": resource_group.resource_group} if is_of_it else {})


def test_the_first_matching_group_applies() -> None:
    groups = (group("a", "namespace", "other"), group("b", "namespace", "team"))
    assert added(*groups, group("c", "namespace", "team")) == {"/spec/schedulerName": "b"}


def test_a_group_overwrites_labels_and_adds_tolerations_and_a_missing_affinity() -> None:
    toleration = {"key": "pool", "tolerationseconds": 5}
    resource_group = group(
        "batch",
        "namespace",
        "team",
        labels={"pool": "batch"},
        affinity='{"nodeAffinity": {}}',
        tolerations=(toleration,),
        scheduler_name="",
    )
    tolerated = {"key": "pool", "tolerationSeconds": 5}
    assert added(resource_group) == {
        "/spec/nodeSelector": {"pool": "batch"},
        "/spec/affinity": {"nodeAffinity": {}},
        "/spec/tolerations": [tolerated],
    }
    own: dict[str, Any] = {
        "nodeSelector": {"pool": "mine", "disk": "ssd"},
        "affinity": {"podAffinity": {}},
        "tolerations": [{"key": "mine"}],
    }
    assert added(resource_group, spec=own) == {
        "/spec/nodeSelector": {"pool": "batch", "disk": "ssd"},
        "/spec/tolerations": [{"key": "mine"}, tolerated],
    }
    assert added(group("batch", "namespace", "team", scheduler_name="")) == {}


def test_a_pod_that_requests_it_gets_one_gate_if_gates_are_enabled() -> None:
    asks = {keys.QUEUE_GATE: "true"}
    gate = {"name": keys.QUEUE_GATE}
    assert added(gates=True, notes=asks) == {"/spec/schedulingGates": [gate]}
    theirs = {"schedulingGates": [{"name": "theirs"}]}
    assert added(gates=True, spec=theirs, notes=asks) == {
        "/spec/schedulingGates": [{"name": "theirs"}, gate]
    }
    assert added(gates=True, spec={"schedulingGates": [{"name": "theirs"}, gate]}, notes=asks) == {}
    assert added(gates=False, notes=asks) == {}
    assert added(gates=True, notes={keys.QUEUE_GATE: "false"}) == {}
    assert added(gates=True) == {}
