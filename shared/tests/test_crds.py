"""The custom resources: their definitions, their defaults, and manifests that pass."""

import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stromboli.shared.jobspec import crds
from stromboli.shared.jobspec.crds import catalog, compose, json_schema

ROOT = pathlib.Path(__file__).parents[2]
JOB = ("batch.volcano.sh", "Job")
GROUPS = {
    definition["spec"]["names"]["kind"]: definition["spec"]["group"]
    for definition in crds.documents()
}

# --- the definitions -------------------------------------------------------------------------


def test_the_files_for_kubectl_match_their_sources() -> None:
    """After an edit of source/: `python -m stromboli.shared.jobspec.crds`."""
    written = {path: path.read_text(encoding="utf-8") for path in crds.paths()}
    assert written == compose.compose_all()


@pytest.mark.parametrize(
    ("kind", "scope", "short_names", "has_status", "columns"),
    [
        ("Job", "Namespaced", "vcjob vj", True, "STATUS minAvailable RUNNINGS AGE QUEUE"),
        ("CronJob", "Namespaced", "cronvcjob cronvj", True, ""),
        ("Command", "Namespaced", "", False, ""),
        (
            "PodGroup",
            "Namespaced",
            "pg podgroup-v1beta1",
            False,
            "STATUS minMember RUNNINGS AGE QUEUE",
        ),
        ("Queue", "Cluster", "q queue-v1beta1", True, "PARENT"),
        ("JobFlow", "Namespaced", "jf", True, "Status Age"),
        ("JobTemplate", "Namespaced", "jt", True, ""),
        ("HyperNode", "Cluster", "hn", True, "Tier TierName NodeCount Age"),
        ("AdvanceReservation", "Cluster", "ares", False, "Start End Duration Maintenance"),
        ("Numatopology", "Cluster", "numatopo", False, ""),
    ],
)
def test_names_scope_status_and_columns_are_those_users_know(
    kind: str, scope: str, short_names: str, has_status: bool, columns: str
) -> None:
    spec = catalog.definition(GROUPS[kind], kind)["spec"]
    [version] = spec["versions"]
    shown = version.get("additionalPrinterColumns", [])
    assert spec["scope"] == scope
    assert spec["names"].get("shortNames", []) == short_names.split()
    assert ("status" in version.get("subresources", {})) is has_status
    assert " ".join(column["name"] for column in shown) == columns
    assert [c["name"] for c in shown if c.get("priority")] == ["QUEUE"] * ("QUEUE" in columns)


def subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    below = list(schema.get("properties", {}).values())
    below += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for child in below:
        yield from subschemas(child)


def test_every_keyword_in_a_schema_is_one_the_check_understands() -> None:
    """A keyword that only the API server enforces would make the two differ."""
    understood = set(json_schema.SAME) | {
        "description",
        "default",
        "format",
        "items",
        "properties",
        "additionalProperties",
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
    }
    for kind, group in GROUPS.items():
        for schema in subschemas(dict(catalog.schema(group, kind))):
            assert set(schema) <= understood
            assert "pattern" not in schema or "title" in schema, "a form needs words"


def test_documents_are_the_callers_to_change() -> None:
    crds.documents()[0].clear()
    assert all(document["kind"] == "CustomResourceDefinition" for document in crds.documents())


def test_an_unknown_kind_is_reported_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"Job\.batch is not a custom resource .*Job\.batch\.volcano\.sh"
    ):
        crds.violations("batch", "Job", {})


# --- defaults --------------------------------------------------------------------------------

JOB_DEFAULTS = {"queue": "default", "maxRetry": 3}
PARTITIONS = {"totalPartitions": 1, "partitionSize": 1}


@pytest.mark.parametrize(
    ("kind", "given_document", "filled"),
    [
        ("Job", {}, {}),
        ("Job", {"spec": {}}, {"spec": JOB_DEFAULTS}),
        ("Job", {"spec": {"queue": "", "maxRetry": 0}}, {"spec": {"queue": "", "maxRetry": 0}}),
        ("Job", {"spec": {"queue": None, "tasks": None}}, {"spec": JOB_DEFAULTS}),
        (
            "Job",
            {"spec": {"networkTopology": {}}},
            {"spec": {"networkTopology": {"mode": "hard"}} | JOB_DEFAULTS},
        ),
        (
            "Job",
            {"spec": {"tasks": [{"partitionPolicy": PARTITIONS}]}},
            {
                "spec": {
                    "tasks": [
                        {
                            "partitionPolicy": {"totalPartitions": 1, "partitionSize": 1}
                            | {"minPartitions": 0}
                        }
                    ]
                }
                | JOB_DEFAULTS
            },
        ),
        (
            "CronJob",
            {"spec": {"jobTemplate": {"spec": {}}}},
            {
                "spec": {
                    "jobTemplate": {"spec": JOB_DEFAULTS},
                    "concurrencyPolicy": "Allow",
                    "suspend": False,
                    "successfulJobsHistoryLimit": 3,
                    "failedJobsHistoryLimit": 1,
                }
            },
        ),
        (
            "PodGroup",
            {"spec": {"subGroupPolicy": [{}]}},
            {
                "spec": {
                    "queue": "default",
                    "subGroupPolicy": [{"subGroupSize": 1, "minSubGroups": 0}],
                }
            },
        ),
        ("Queue", {"spec": {}}, {"spec": {"weight": 1, "dequeueStrategy": "traverse"}}),
        ("JobTemplate", {"spec": {}}, {"spec": JOB_DEFAULTS}),
        ("Command", {"action": "AbortJob"}, {"action": "AbortJob"}),
    ],
)
def test_defaults_are_filled_in_only_where_their_parent_is(
    kind: str, given_document: dict[str, Any], filled: dict[str, Any]
) -> None:
    assert crds.apply_defaults(GROUPS[kind], kind, given_document) == filled


def test_a_flows_patch_gets_no_defaults_since_they_would_override_the_template() -> None:
    patch = {"jobSpec": {"minAvailable": 2, "networkTopology": {}}}
    document = {"spec": {"flows": [{"name": "a", "patch": patch}]}}
    assert crds.apply_defaults("flow.volcano.sh", "JobFlow", document) == document


def test_yaml_values_beyond_json_are_converted_like_kubectl() -> None:
    document = yaml.safe_load(
        "{metadata: {creationTimestamp: 2030-01-31T12:00:00Z, labels: null},"
        " spec: {tasks: [{template: {metadata: {labels: {1: a}}}}]}}"
    )
    filled = crds.apply_defaults(*JOB, document)
    assert filled["metadata"] == {"creationTimestamp": "2030-01-31T12:00:00Z"}
    assert filled["spec"]["tasks"] == [{"template": {"metadata": {"labels": {"1": "a"}}}}]
    assert crds.violations(*JOB, document) == ()


# --- any document ----------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def valid(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Documents that follow the schema, nulls and absent fields included."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(0) | st.from_regex(schema["pattern"], fullmatch=True)
    if "oneOf" in schema:
        return st.just({"regexMatch": {"pattern": "x"}})
    match schema["type"]:
        case "object" if "additionalProperties" in schema:
            return st.dictionaries(st.text(), valid(schema["additionalProperties"]), max_size=2)
        case "object":
            fields = {name: valid(child) for name, child in schema.get("properties", {}).items()}
            required = {name: fields.pop(name) for name in schema.get("required", [])}
            optional = {name: st.none() | child for name, child in fields.items()}
            return st.fixed_dictionaries(required, optional=optional)
        case "array":
            return st.lists(valid(schema["items"]), min_size=schema.get("minItems", 0), max_size=2)
        case "integer":
            return st.integers(schema.get("minimum", -5), schema.get("maximum", 2**31 - 1))
        case "boolean":
            return st.booleans()
    if "pattern" in schema:
        sample = st.from_regex(re.compile(schema["pattern"], re.ASCII), fullmatch=True)
        return sample.filter(lambda text: len(text) <= schema.get("maxLength", 99))
    if schema.get("format") == "date-time":
        return st.datetimes().map(lambda at: f"{at.replace(microsecond=0).isoformat()}Z")
    return st.text(min_size=schema.get("minLength", 0), max_size=5)


SPECS = {
    kind: valid({**schema, "properties": {"spec": schema["properties"]["spec"]}})
    for kind in ("Job", "Queue", "PodGroup", "HyperNode", "Numatopology")
    for schema in [catalog.schema(GROUPS[kind], kind)]
}


@given(st.sampled_from(sorted(SPECS)).flatmap(lambda kind: st.tuples(st.just(kind), SPECS[kind])))
def test_whatever_follows_the_schema_is_accepted(drawn: tuple[str, Any]) -> None:
    kind, document = drawn
    assert crds.violations(GROUPS[kind], kind, document) == ()


@given(anything, st.sampled_from(["", "metadata", "spec", "spec.tasks", "spec.plugins", "status"]))
def test_any_document_is_judged_and_defaulted_without_touching_it(value: Any, path: str) -> None:
    """Bad input ends in violations, never in an exception; defaulting twice changes nothing."""
    document: Any = value
    for name in reversed(path.split(".") if path else []):
        document = {name: document}
    before = repr(document)
    crds.violations(*JOB, document)
    once = crds.apply_defaults(*JOB, document)
    assert repr(document) == before
    assert repr(crds.apply_defaults(*JOB, once)) == repr(once)


# --- manifests -------------------------------------------------------------------------------

DEMO = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: demo}
spec:
  minAvailable: 2
  maxRetry: 4
  policies:
  - {event: PodEvicted, action: RestartJob, timeout: 30s}
  plugins: {svc: ["--disable-network-policy"], env: []}
  tasks:
  - name: lead
    replicas: 1
    dependsOn: {name: [peer]}
    policies: [{event: TaskCompleted, action: CompleteJob}]
    template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}
  - name: peer
    replicas: 4
    minAvailable: 2
    partitionPolicy: {totalPartitions: 2, partitionSize: 2, minPartitions: 1}
    policies: [{exitCode: 137, action: RestartPartition}]
    template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}
"""


def test_a_manifest_with_every_common_part_passes() -> None:
    assert crds.violations(*JOB, yaml.safe_load(DEMO)) == ()


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_the_examples_pass(path: pathlib.Path) -> None:
    ours = 0
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        group, _, _ = document["apiVersion"].rpartition("/")
        if group.endswith("volcano.sh"):
            ours += 1
            assert crds.violations(group, document["kind"], document) == ()
    assert ours
