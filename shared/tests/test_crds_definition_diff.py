"""The fields that an installed CRD lacks: the API server would drop them silently."""

from typing import Any

import pytest

from stromboli.shared.jobspec import crds
from stromboli.shared.jobspec.crds import definition_diff

Document = dict[str, Any]


def definition(name: str = "jobs.batch.volcano.sh") -> Document:
    return next(it for it in crds.documents() if it["metadata"]["name"] == name)


def spec_of(document: Document) -> Document:
    (version,) = document["spec"]["versions"]
    properties: Document = version["schema"]["openAPIV3Schema"]["properties"]
    spec: Document = properties["spec"]["properties"]
    return spec


def without_a_field(theirs: Document) -> None:
    del spec_of(theirs)["queue"]


def without_a_nested_field(theirs: Document) -> None:
    del spec_of(theirs)["tasks"]["items"]["properties"]["maxRetry"]


def without_status(theirs: Document) -> None:
    theirs["spec"]["versions"][0]["subresources"] = None


def of_another_version(theirs: Document) -> None:
    theirs["spec"]["versions"][0]["name"] = "v1"


def not_served(theirs: Document) -> None:
    theirs["spec"]["versions"][0]["served"] = False


def of_another_scope(theirs: Document) -> None:
    theirs["spec"]["scope"] = "Cluster"


def with_fewer_values(theirs: Document) -> None:
    mode = spec_of(theirs)["networkTopology"]["properties"]["mode"]
    mode["enum"] = ["soft"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_a_field, "spec.queue"),
        (without_a_nested_field, "spec.tasks[].maxRetry"),
        (without_status, "status is not a subresource"),
        (of_another_version, "version v1alpha1 is not served"),
        (not_served, "version v1alpha1 is not served"),
        (of_another_scope, "its scope is Cluster, not Namespaced"),
        (with_fewer_values, "spec.networkTopology.mode: does not allow hard"),
    ],
)
def test_missing_fields_are_reported(change: Any, said: str) -> None:
    theirs = definition()
    change(theirs)
    assert definition_diff.missing_parts(definition(), theirs) == (said,)


@pytest.mark.parametrize("ours", crds.documents(), ids=lambda it: str(it["metadata"]["name"]))
def test_a_definition_lacks_nothing_of_itself(ours: Document) -> None:
    assert definition_diff.missing_parts(ours, ours) == ()


def test_an_open_schema_lacks_nothing() -> None:
    """A definition that keeps fields which it does not know."""
    theirs = definition()
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    theirs["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    assert definition_diff.missing_parts(definition(), theirs) == ()


def test_a_definition_with_more_fields_lacks_nothing() -> None:
    theirs = definition()
    spec_of(theirs)["another"] = {"type": "string"}
    assert definition_diff.missing_parts(definition(), theirs) == ()
