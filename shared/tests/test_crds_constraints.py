"""Field by field: valid and invalid values of custom resources, and the messages."""

import re
from typing import Any

import pytest

from stromboli.shared.jobspec import crds

JOB = ("batch.volcano.sh", "Job")
GROUPS = {
    definition["spec"]["names"]["kind"]: definition["spec"]["group"]
    for definition in crds.documents()
}

SMALLEST: dict[str, dict[str, Any]] = {
    "CronJob": {"spec": {"schedule": "@daily", "jobTemplate": {"spec": {}}}},
    "HyperNode": {"spec": {"tier": 1}},
}
"""The smallest valid document of each kind that is not valid when empty."""


def put(document: Any, path: str, value: Any) -> Any:
    """A copy of the document with the value at a path such as `spec.tasks[0].name`."""
    parts = re.findall(r"\[0\]|[^.\[\]]+", path)

    def below(at: Any, parts: list[str]) -> Any:
        if not parts:
            return value
        if parts[0] == "[0]":
            return [below(at[0] if at else {}, parts[1:])]
        return {**(at or {}), parts[0]: below((at or {}).get(parts[0]), parts[1:])}

    return below(document, parts)


def refused(kind: str, document: Any) -> list[str]:
    return [violation.path for violation in crds.violations(GROUPS[kind], kind, document)]


def messages(document: Any) -> list[str]:
    return [violation.message for violation in crds.violations(*JOB, document)]


# --- constraints -----------------------------------------------------------------------------

EVENTS = ["*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted"]
EVENTS += ["OutOfSync", "CommandIssued", "JobUpdated", "TaskFailed"]
CONTAINERS = "spec.tasks[0].template.spec.containers"
PARTITIONS = {"totalPartitions": 1, "partitionSize": 1}
BOTH_MATCHES = {"exactMatch": {"name": "s0"}, "regexMatch": {"pattern": "s"}}
MEMBER = "spec.members[0].selector"
DATA_SET = {"name": "a", "uri": "s3://b/a", "mountPath": "/data"}
REFERENCE = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}


@pytest.mark.parametrize(
    ("kind", "path", "right", "wrong"),
    [
        ("Job", "apiVersion", ["batch.volcano.sh/v1alpha1"], ["batch/v1", 1]),
        ("Job", "kind", ["Job"], ["job"]),
        ("Job", "metadata.name", ["a", "a-b.c"], ["", "A", "a_b", "a" * 254]),
        ("Job", "metadata.namespace", ["a", ""], ["a.b", "a" * 64]),
        ("Job", "metadata.labels.a", ["", "x_Y.z"], [1, "ä", "x" * 64]),
        ("Job", "spec", [{}], [[], "x"]),
        ("Job", "spec.schedulerName", ["volcano", "s" * 63], ["s" * 64, 1]),
        ("Job", "spec.minAvailable", [0, 2**31 - 1], [-1, 2**31, "1", 1.5, True]),
        ("Job", "spec.volumes[0].mountPath", ["/data"], ["/a:b", "", 1]),
        ("Job", "spec.volumes", [[{"mountPath": "/a", "volumeClaimName": "c" * 253}]], ["/a"]),
        ("Job", "spec.dataSets", [[], [DATA_SET] * 32], [[DATA_SET] * 33, "a"]),
        ("Job", "spec.dataSets[0].name", ["a", "a-b"], ["", "A", "a" * 64]),
        ("Job", "spec.dataSets[0].mountPath", ["/", "/data"], ["data", "/a:b", ""]),
        ("Job", "spec.dataSets[0].size", ["12Gi", 1], ["12 GB", 1.5]),
        ("Job", "spec.dataSets[0].digest", ["", "sha256:" + "0" * 64], ["sha256:0", "md5:0"]),
        ("Job", "spec.dataSets[0].locality", ["Preferred", "Required"], ["", "Always"]),
        ("Job", "spec.dataSets[0].sharing", ["Share", "Spread"], ["", "None"]),
        ("Job", "spec.dataSets[0].readOnly", [True, False], ["yes"]),
        ("Job", "spec.tasks", [[{}]], [[], {}]),
        ("Job", "spec.plugins", [{"svc": [], "env": ["--x=1"]}], [["svc"]]),
        ("Job", "spec.plugins.svc", [[]], ["--x", True]),
        ("Job", "spec.runningEstimate", ["90s", "1h30m", "1.5h", "0"], ["90", "1 h", 90]),
        ("Job", "spec.queue", ["default", "a.b", ""], ["Q", "a_b", "a" * 254, "-a"]),
        ("Job", "spec.maxRetry", [0, 3], [-1]),
        ("Job", "spec.ttlSecondsAfterFinished", [0], [-1, "1h"]),
        ("Job", "spec.priorityClassName", ["high", ""], ["High"]),
        ("Job", "spec.minSuccess", [1], [0]),
        ("Job", "spec.networkTopology.mode", ["hard", "soft"], ["Hard", ""]),
        ("Job", "spec.networkTopology.highestTierAllowed", [0, 2], [-1, "2"]),
        ("Job", "spec.networkTopology.highestTierName", ["rack"], ["r" * 254]),
        ("Job", "spec.tasks[0].name", ["a", "a-1", "", "a" * 63], ["a.b", "A", "a" * 64]),
        ("Job", "spec.tasks[0].replicas", [0, 5], [-1, "5"]),
        ("Job", "spec.tasks[0].minAvailable", [0], [-1]),
        ("Job", "spec.tasks[0].maxRetry", [0], [-1]),
        (
            "Job",
            "spec.tasks[0].topologyPolicy",
            ["none", "best-effort", "restricted", "single-numa-node"],
            ["best"],
        ),
        ("Job", "spec.tasks[0].dependsOn.name", [["a", "b"]], ["a"]),
        ("Job", "spec.tasks[0].dependsOn.iteration", ["any", "all", "what"], [1]),
        ("Job", "spec.tasks[0].partitionPolicy", [PARTITIONS], [1]),
        ("Job", "spec.policies[0].event", EVENTS, ["PodGone", ""]),
        ("Job", "spec.policies[0].events[0]", EVENTS, ["PodGone"]),
        ("Job", "spec.policies[0].action", ["RestartJob", "Anything"], [1]),
        ("Job", "spec.policies[0].exitCode", [137, -1], ["137", 2**31]),
        ("Job", "spec.policies[0].timeout", ["30s"], ["30"]),
        ("Job", CONTAINERS, [[{"name": "c", "anything": 1}]], [[], {}]),
        ("Job", "spec.tasks[0].template.metadata.labels.a", ["x"], [1]),
        ("Job", "status.state.lastTransitionTime", ["2030-01-31T12:00:00Z"], ["now"]),
        ("CronJob", "spec.startingDeadlineSeconds", [0], [-1]),
        ("CronJob", "spec.concurrencyPolicy", ["Allow", "Forbid", "Replace"], ["allow"]),
        ("CronJob", "spec.suspend", [True], ["true"]),
        ("CronJob", "spec.successfulJobsHistoryLimit", [0], [-1]),
        ("CronJob", "spec.failedJobsHistoryLimit", [0], [-1]),
        ("CronJob", "spec.jobTemplate.spec.minAvailable", [1], [-1]),
        ("Command", "action", ["AbortJob"], [1]),
        ("Command", "target", [REFERENCE], ["job/a"]),
        ("PodGroup", "spec.minMember", [0], [-1]),
        ("PodGroup", "spec.minTaskMember.worker", [2], ["2"]),
        ("PodGroup", "spec.minResources.cpu", [2, "500m"], ["12x", 0.5]),
        ("PodGroup", "spec.networkTopology.mode", ["hard"], ["x"]),
        ("PodGroup", "spec.subGroupPolicy[0].subGroupSize", [1], [0]),
        ("PodGroup", "spec.subGroupPolicy[0].minSubGroups", [0], [-1]),
        ("PodGroup", "spec.subGroupPolicy[0].matchLabelKeys", [["a"]], ["a"]),
        ("PodGroup", "spec.subGroupPolicy[0].labelSelector.matchLabels.a", ["x"], [1]),
        ("Queue", "spec.weight", [1, 65535], [0, 65536]),
        ("Queue", "spec.capability.cpu", [2, "500m", "1Gi", "1e3", ".5"], ["12x", "", "1 Gi"]),
        ("Queue", "spec.guarantee.resource.memory", ["1Gi"], ["1GiB"]),
        ("Queue", "spec.deserved.cpu", ["2"], [True]),
        ("Queue", "spec.extendClusters[0].capacity.cpu", ["2"], ["two"]),
        ("Queue", "spec.reclaimable", [False], ["no"]),
        ("Queue", "spec.priority", [0], [-1]),
        ("Queue", "spec.parent", ["root", "", "a.b"], ["Root"]),
        ("Queue", "spec.dequeueStrategy", ["fifo", "traverse"], ["lifo"]),
        (
            "Queue",
            "spec.affinity.nodeGroupAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            [["a"]],
            ["a"],
        ),
        ("JobFlow", "spec.jobRetainPolicy", ["retain", "delete"], ["keep"]),
        ("JobFlow", "spec.flows[0].name", ["a"], ["", 1]),
        ("JobFlow", "spec.flows[0]", [{"name": "a", "patch": {"jobSpec": {"maxRetry": 1}}}], [1]),
        ("JobTemplate", "spec.maxRetry", [0], [-1]),
        ("HyperNode", "spec.tier", [0], [-1, "1"]),
        ("HyperNode", "spec.tierName", ["t" * 253], ["t" * 254]),
        ("HyperNode", "spec.members", [[{"type": "Node"}]], [[]]),
        ("HyperNode", "spec.members[0].type", ["Node", "HyperNode"], ["Rack"]),
        ("Numatopology", "spec.numares.cpu.capacity", [8], ["8"]),
        ("Numatopology", "spec.cpuDetail.0.numa", [0], ["0"]),
        ("Numatopology", "spec.policies.CPUManagerPolicy", ["static"], [True]),
    ],
)
def test_a_field_accepts_valid_and_rejects_invalid_values(
    kind: str, path: str, right: list[Any], wrong: list[Any]
) -> None:
    smallest = put(SMALLEST.get(kind, {}), path, None)
    others = set(refused(kind, smallest))  # what the case leaves out beside its own field
    for value in right:
        assert set(refused(kind, put(smallest, path, value))) <= others - {path}, value
    for value in wrong:
        assert path in refused(kind, put(smallest, path, value)), value


@pytest.mark.parametrize(
    ("kind", "path", "value", "missing"),
    [
        ("Job", "spec.volumes[0]", {}, ["mountPath"]),
        ("Job", "spec.tasks[0].template.spec", {}, ["containers"]),
        ("Job", f"{CONTAINERS}[0]", {"image": "busybox"}, ["name"]),
        ("Job", "spec.tasks[0].partitionPolicy", {}, ["partitionSize", "totalPartitions"]),
        ("CronJob", "spec", {}, ["jobTemplate", "schedule"]),
        ("Command", "target", {}, ["apiVersion", "kind", "name", "uid"]),
        ("JobFlow", "spec.flows[0]", {}, ["name"]),
        ("HyperNode", "spec", {}, ["tier"]),
        ("HyperNode", "spec.members[0]", {}, ["type"]),
        ("HyperNode", f"{MEMBER}.exactMatch", {}, ["name"]),
    ],
)
def test_a_required_field_that_is_absent_or_null_is_missing(
    kind: str, path: str, value: dict[str, Any], missing: list[str]
) -> None:
    expected = [f"{path}.{name}" for name in missing]
    for given_value in (value, value | dict.fromkeys(missing)):
        document = put(SMALLEST.get(kind, {}), path, given_value)
        assert [at for at in refused(kind, document) if at.startswith(f"{path}.")] == expected


@pytest.mark.parametrize(
    ("selector", "reason"),
    [
        ({"exactMatch": {"name": "s0"}}, None),
        ({"regexMatch": {"pattern": "s"}}, None),
        ({"labelMatch": {}}, None),
        ({}, "has none of the alternative fields"),
        (BOTH_MATCHES, "has exactMatch and regexMatch"),
    ],
)
def test_a_hypernodes_member_is_selected_in_exactly_one_way(
    selector: dict[str, Any], reason: str | None
) -> None:
    member = {"type": "Node", "selector": selector}
    violations = crds.violations(
        "topology.volcano.sh", "HyperNode", {"spec": {"tier": 1, "members": [member]}}
    )
    expected = "expected exactly one of exactMatch, regexMatch, labelMatch"
    assert [(v.path, v.reason, v.expected) for v in violations] == (
        [(MEMBER, reason, expected)] if reason else []
    )


# --- messages --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("spec.minAvailble", 1, 'unknown field; did you mean "minAvailable"?'),
        ("spec.tasks[0].template.foo", 1, 'unknown field; expected one of "metadata", "spec"'),
        ("metadata.lables", {}, 'unknown field; did you mean "labels"?'),
        ("spec.minAvailable", "two", '"two" is a string; expected an integer'),
        ("spec.minAvailable", True, "true is a boolean; expected an integer"),
        ("spec.tasks", {"a": 1}, "is an object; expected a list"),
        ("spec.tasks", [], "has 0 items; expected at least 1"),
        ("spec.maxRetry", -1, "-1 is too small; expected at least 0"),
        (
            "spec.networkTopology.mode",
            "softer",
            '"softer" is not one of the choices; expected one of "hard", "soft" '
            '(did you mean "soft"?)',
        ),
        (
            "spec.runningEstimate",
            "soon",
            '"soon" does not have the right form; '
            'expected a duration such as "30s", "5m" or "1h30m"',
        ),
        ("spec.schedulerName", "s" * 70, "is 70 characters long; expected at most 63"),
        ("status.state.lastTransitionTime", "now", '"now" is not a time; expected one such as'),
    ],
)
def test_a_violation_has_path_value_and_correction(path: str, value: Any, message: str) -> None:
    [found] = messages(put({}, path, value))
    assert found.startswith(f"{path}: {message}")


def test_a_bad_quantity_is_shown_with_a_good_one() -> None:
    requests = {"cpu": 2, "memory": "1Gi", "nvidia.com/gpu": "12x"}
    container = {"name": "c", "resources": {"requests": requests}}
    assert messages(put({}, f"{CONTAINERS}[0]", container)) == [
        f'{CONTAINERS}[0].resources.requests["nvidia.com/gpu"]: "12x" does not have the right '
        'form; expected a quantity such as 2, "500m" or "64Mi"'
    ]


def test_a_document_that_is_no_object_is_refused_as_a_whole() -> None:
    assert messages(None) == ["document: is null; expected an object"]


def test_all_violations_are_reported_in_the_order_of_paths() -> None:
    document = {
        "apiVersion": "batch.volcano.sh/v1",
        "kind": "Job",
        "metadata": {"name": "Bad"},
        "spec": {
            "minAvailble": 2,
            "queue": "Q",
            "maxRetry": -1,
            "tasks": [{"replicas": "two"}, {"name": "x" * 64, "policies": [{"event": "No"}]}],
        },
    }
    assert refused("Job", document) == [
        "apiVersion",
        "metadata.name",
        "spec.maxRetry",
        "spec.minAvailble",
        "spec.queue",
        "spec.tasks[0].replicas",
        "spec.tasks[1].name",
        "spec.tasks[1].policies[0].event",
    ]
