"""Who may use a queue or a priority class, and which user an object records."""

from typing import Any

import msgspec
import pytest

from stromboli.shared import keys
from stromboli.shared.api import core, kinds, meta, scheduling
from stromboli.shared.api.kinds import Kind
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.validation import patch, review
from stromboli.shared.jobspec.validation.queueing import permissions
from stromboli.shared.jobspec.validation.queueing.permissions import Submitter
from stromboli.testkit.admission_cases import manifests

POLICY = review.AdmissionPolicy(
    scheduler_names=("volcano",), plugins=job_plugins.load(), max_queue_depth=5
)
ANN, BOB = Submitter("ann", ("vision", "all")), Submitter("bob", ("all",))


def metadata(**lists: str) -> meta.ObjectMeta:
    return meta.ObjectMeta(
        name="gold",
        annotations={f"{keys.PREFIX}allowed-{word}": text for word, text in lists.items()},
    )


@pytest.mark.parametrize(
    ("lists", "namespace", "submitter", "is_allowed"),
    [
        ({}, "red", Submitter(), True),
        ({"namespaces": "blue, red"}, "red", BOB, True),
        ({"namespaces": "blue"}, "red", ANN, False),
        ({"users": "ann"}, "red", ANN, True),
        ({"users": "ann"}, "red", BOB, False),
        ({"groups": "vision"}, "red", ANN, True),
        ({"groups": "vision"}, "red", BOB, False),
        ({"namespaces": "blue", "users": "bob", "groups": "vision"}, "red", ANN, True),
        ({"namespaces": ""}, "red", ANN, False),
        ({"users": ""}, "red", Submitter(), False),
        ({"groups": "cn=a,ou=b\n"}, "red", Submitter("x", ("cn=a,ou=b",)), True),
        ({"groups": "cn=a,ou=b\n"}, "red", Submitter("x", ("cn=a",)), False),
    ],
)
def test_any_of_the_lists_allows_and_no_list_allows_all(
    lists: dict[str, str], namespace: str, submitter: Submitter, is_allowed: bool
) -> None:
    assert permissions.allows(metadata(**lists), namespace, submitter) == is_allowed


def test_a_submitter_is_read_as_it_was_recorded() -> None:
    for submitter in (ANN, Submitter("x", ("cn=a,ou=b",)), Submitter("x", ("a,b", "c"))):
        noted = meta.ObjectMeta(annotations=permissions.annotations(submitter))
        read = permissions.recorded(noted)
        assert (read.name, set(read.groups)) == (submitter.name, set(submitter.groups))


def test_groups_beyond_the_limit_give_no_right() -> None:
    many = Submitter("ann", tuple(f"group-{index:04}" for index in range(2000)))
    noted = permissions.annotations(many)
    kept = permissions.names(noted[keys.USER_GROUPS])
    assert len(kept) == permissions.MAX_GROUPS
    assert len(noted[keys.USER_GROUPS]) <= permissions.MAX_GROUPS_LENGTH


def template(**spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = manifests.job(**spec)["spec"]
    return made


def document(kind: Kind[Any], **annotations: str) -> dict[str, Any]:
    spec: dict[str, Any]
    if kind == kinds.JOBS:
        spec = template(queue="gold", priorityClassName="urgent")
    elif kind == kinds.CRON_JOBS:
        spec = {
            "schedule": "@daily",
            "jobTemplate": {"spec": template(queue="gold", priorityClassName="urgent")},
        }
    elif kind == kinds.POD_GROUPS:
        spec = {"minMember": 1, "queue": "gold", "priorityClassName": "urgent"}
    else:
        spec = {"flows": [{"name": "a"}]}
    made = manifests.bare_object(kind, "one", spec=spec)
    made["metadata"]["namespace"] = "red"
    if annotations:
        made["metadata"]["annotations"] = annotations
    return made


def known(
    lists: dict[str, str], submitter: Submitter | None, *, asks: bool = True
) -> review.ClusterContext:
    gold = scheduling.Queue(metadata=metadata(**lists))
    gold = msgspec.structs.replace(gold, status=msgspec.structs.replace(gold.status, state="Open"))
    urgent = core.PriorityClass(
        metadata=msgspec.structs.replace(metadata(**lists), name="urgent"), value=1
    )
    return review.ClusterContext(
        queues={"gold": gold},
        priority_classes={"urgent": urgent},
        submitter=submitter,
        requester=submitter if asks else None,
    )


QUEUE, PRIORITY = "spec.queue", "spec.priorityClassName"
USES = {
    kinds.JOBS: {QUEUE, PRIORITY},
    kinds.POD_GROUPS: {QUEUE, PRIORITY},
    kinds.CRON_JOBS: {f"spec.jobTemplate.{QUEUE}", f"spec.jobTemplate.{PRIORITY}"},
}


@pytest.mark.parametrize("kind", USES, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("submitter", [ANN, BOB, Submitter()], ids=lambda it: it.name or "nobody")
def test_queues_and_priorities_are_used_by_those_they_name(
    kind: Kind[Any], submitter: Submitter
) -> None:
    noted = permissions.annotations(submitter)
    made, around = document(kind, **noted), known({"groups": "vision"}, submitter)
    violations = review.violations(kind, "CREATE", made, None, around, POLICY)
    assert {each.path for each in violations} == (set() if submitter is ANN else USES[kind])
    open_to_all = known({}, submitter)
    assert review.violations(kind, "CREATE", made, None, open_to_all, POLICY) == ()


def test_a_task_has_no_priority_that_its_job_may_not_have() -> None:
    made = document(kinds.JOBS, **permissions.annotations(BOB))
    del made["spec"]["priorityClassName"]
    made["spec"]["tasks"][0]["template"]["spec"]["priorityClassName"] = "urgent"
    around = known({"users": "ann"}, BOB)
    violations = review.violations(kinds.JOBS, "CREATE", made, None, around, POLICY)
    path = "spec.tasks[0].template.spec.priorityClassName"
    assert {each.path for each in violations} == {QUEUE, path}


def test_a_change_needs_permission_only_for_what_it_adds() -> None:
    """What was admitted stays: a job scales though its queue has been restricted since."""
    before = document(kinds.POD_GROUPS)
    around = known({"users": "ann"}, BOB)
    after = {**before, "spec": {**before["spec"], "minMember": 2}}
    assert review.violations(kinds.POD_GROUPS, "UPDATE", after, before, around, POLICY) == ()
    elsewhere = {**before, "spec": {**before["spec"], "queue": "other"}}
    violations = review.violations(kinds.POD_GROUPS, "UPDATE", before, elsewhere, around, POLICY)
    assert {each.path for each in violations} == {QUEUE}


@pytest.mark.parametrize("kind", permissions.SUBMITTER_KINDS, ids=lambda kind: kind.kind)
@pytest.mark.parametrize(
    "claimed",
    [{}, {keys.USER: "boss"}, {keys.USER: "boss", keys.USER_GROUPS: "admins"}],
    ids=["nothing", "a user", "groups"],
)
def test_a_new_object_records_its_creator(kind: Kind[Any], claimed: dict[str, str]) -> None:
    made, bob = document(kind, **claimed), known({}, BOB)
    made = patch.applied(made, review.submitter_patch(kind, made, None, POLICY, bob))
    assert permissions.recorded(kinds.metadata_of(msgspec.json.encode(made))) == BOB
    assert review.violations(kind, "CREATE", made, None, bob, POLICY) == ()


@pytest.mark.parametrize("kind", permissions.SUBMITTER_KINDS, ids=lambda kind: kind.kind)
def test_a_forged_name_is_rejected_on_an_object_without_a_recorded_one(kind: Kind[Any]) -> None:
    """As when another webhook changes it afterwards."""
    for forged in ({keys.USER: "ann"}, {keys.USER: "bob", keys.USER_GROUPS: "vision"}):
        made = document(kind, **forged)
        violations = review.violations(kind, "CREATE", made, None, known({}, BOB), POLICY)
        assert [each.path for each in violations] == [f"metadata.annotations[{keys.USER}]"]


@pytest.mark.parametrize("kind", permissions.SUBMITTER_KINDS, ids=lambda kind: kind.kind)
def test_no_change_can_take_over_the_name_of_another_user(kind: Kind[Any]) -> None:
    before = document(kind, **permissions.annotations(ANN))
    after = document(kind, **permissions.annotations(BOB))
    carol = known({}, Submitter("carol"))
    violations = review.violations(kind, "UPDATE", after, before, carol, POLICY)
    assert [each.path for each in violations] == [f"metadata.annotations[{keys.USER}]"]


@pytest.mark.parametrize("kind", permissions.WORKLOAD_KINDS, ids=lambda kind: kind.kind)
def test_the_user_who_changes_a_flow_or_cron_becomes_the_submitter(kind: Kind[Any]) -> None:
    """Otherwise a user who may edit a cron could run commands as its author."""
    before, bob = document(kind, **permissions.annotations(ANN)), known({}, BOB)
    same = document(kind, **{keys.USER: "bob", "note": "x"})
    same = patch.applied(same, review.submitter_patch(kind, same, before, POLICY, bob))
    assert permissions.recorded(kinds.metadata_of(msgspec.json.encode(same))).name == "ann"
    assert review.violations(kind, "UPDATE", same, before, bob, POLICY) == ()
    other = {**before, "spec": {**before["spec"], "successfulJobsHistoryLimit": 1}}
    if kind == kinds.JOB_FLOWS:
        other["spec"] = {"flows": [{"name": "b"}]}
    other = patch.applied(other, review.submitter_patch(kind, other, before, POLICY, bob))
    assert permissions.recorded(kinds.metadata_of(msgspec.json.encode(other))) == BOB
    assert review.violations(kind, "UPDATE", other, before, bob, POLICY) == ()


def test_a_service_writes_in_the_name_of_the_submitter() -> None:
    """The submitter of a child job is that of its flow or cron, with the same permissions."""
    made = document(kinds.JOBS, **permissions.annotations(ANN))
    around = known({"users": "ann"}, ANN, asks=False)
    assert review.submitter_patch(kinds.JOBS, made, None, POLICY, around) == ()
    assert review.violations(kinds.JOBS, "CREATE", made, None, around, POLICY) == ()
    around = known({"users": "bob"}, ANN, asks=False)
    violations = review.violations(kinds.JOBS, "CREATE", made, None, around, POLICY)
    assert {each.path for each in violations} == {QUEUE, PRIORITY}
