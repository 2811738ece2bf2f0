"""Defaults for queues, and the queue of a job."""

from typing import Any

import msgspec
import pytest

from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.validation import defaults, patch, review
from stromboli.testkit.admission_cases import manifests

POLICY = review.AdmissionPolicy(
    scheduler_names=("volcano",), plugins=job_plugins.BUILT_IN, max_queue_depth=5
)
SPEC = {"weight": 1, "reclaimable": True}


def completed(document: dict[str, Any]) -> dict[str, Any]:
    return dict(patch.applied(document, review.default_patch(kinds.QUEUES, document, POLICY)))


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (None, SPEC),
        ({}, SPEC),
        ({"weight": 0}, SPEC),
        ({"weight": 7, "reclaimable": False}, {"weight": 7, "reclaimable": False}),
        ({"parent": "team"}, {**SPEC, "parent": "team"}),
    ],
)
def test_a_queue_has_weight_one_and_is_reclaimable_by_default(
    spec: dict[str, Any] | None, wanted: dict[str, Any]
) -> None:
    document = manifests.bare_object(kinds.QUEUES, "q", **({} if spec is None else {"spec": spec}))
    assert completed(document)["spec"] == wanted


@pytest.mark.parametrize(
    ("hierarchy", "weights", "wanted"),
    [
        ("a/b", "2/3", ("root/a/b", "1/2/3")),
        ("root/a", "1/2", ("root/a", "1/2")),
        ("rooted/a", "1/2", ("root/rooted/a", "1/1/2")),
        ("a/b", "", ("a/b", "")),
        ("", "2", ("", "2")),
    ],
)
def test_a_hierarchy_with_weights_starts_at_the_root(
    hierarchy: str, weights: str, wanted: tuple[str, str]
) -> None:
    notes = {keys.HIERARCHY: hierarchy, keys.HIERARCHY_WEIGHTS: weights}
    found = completed(manifests.queue("q", annotations=notes))["metadata"]["annotations"]
    assert (found[keys.HIERARCHY], found[keys.HIERARCHY_WEIGHTS]) == wanted


@pytest.mark.parametrize(
    ("own", "of_namespace", "wanted"),
    [
        ("", "", "default"),
        ("", "team", "team"),
        ("default", "team", "team"),
        ("default", "", None),
        ("mine", "team", None),
    ],
)
def test_a_jobs_queue_is_its_own_then_its_namespaces_then_the_default_one(
    own: str, of_namespace: str, wanted: str | None
) -> None:
    """None: the job's own value is never overwritten."""
    job = kinds.JOBS.decode(msgspec.json.encode(manifests.job(queue=own)))
    added = {it.path: it.value for it in defaults.of_job(job, "volcano", "", of_namespace)}
    assert added.get("/spec/queue") == wanted
