"""Rules of ``strom queue``."""

import json
from typing import Any

import msgspec
import pytest

from stromboli.cli.commands import queues
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.testkit import builders


def test_create_prints_the_new_queue_and_list_shows_it(api_server: Any, strom: Any) -> None:
    made = strom("queue", "create", "research", "--weight", "3")
    assert (made.exit_code, made.stdout) == (
        0,
        "queue.scheduling.volcano.sh/research created\n",
    )
    for name, phase in (("g1", "Running"), ("g2", "Running"), ("g3", "")):
        api_server.create(
            kinds.POD_GROUPS, builders.make_pod_group(name, queue="research", phase=phase)
        )
    listed = [line.split() for line in strom("queue", "list").stdout.splitlines()]
    assert listed[0] == [
        "NAME", "STATE", "WEIGHT", "PARENT",
        "INQUEUE", "PENDING", "RUNNING", "UNKNOWN", "COMPLETED",
    ]  # fmt: skip
    research = next(row for row in listed if row[0] == "research")
    assert research[:3] == ["research", "Open", "3"]
    assert research[4:] == ["0", "1", "2", "0", "0"]


def test_get_shows_capability_and_guarantee(strom: Any) -> None:
    strom(
        "queue", "create", "research", "--capability", "cpu=8,memory=16Gi",
        "--deserved", "cpu=4,memory=8Gi", "--guarantee", "cpu=1,memory=1Gi", "--no-reclaimable",
    )  # fmt: skip
    shown = strom("queue", "get", "research")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[2:] == [
        "capability  cpu 8, memory 16Gi",
        "deserved    cpu 4, memory 8Gi",
        "guarantee   cpu 1, memory 1Gi",
    ]
    found = json.loads(strom("queue", "get", "research", "-o", "json").stdout)
    assert (found["kind"], found["spec"]["reclaimable"]) == ("Queue", False)


def test_get_shows_the_violations_of_a_queue_created_past_admission() -> None:
    queue = builders.make_queue("team")
    assert queues.invalid_fields(queue) == []
    marked = msgspec.structs.replace(
        queue.metadata, annotations={keys.VIOLATIONS: "spec.parent: queue 'x' does not exist"}
    )
    shown = queues.invalid_fields(msgspec.structs.replace(queue, metadata=marked))
    assert shown == ["invalid     spec.parent: queue 'x' does not exist"]


def test_list_as_json_is_a_list_of_objects_with_their_kind(strom: Any) -> None:
    listed = json.loads(strom("queue", "list", "--output", "json").stdout)
    assert listed["kind"] == "List"
    assert {item["kind"] for item in listed["items"]} == {"Queue"}


def test_a_queue_below_one_that_is_absent_is_refused(strom: Any) -> None:
    refused = strom("queue", "create", "a", "--parent", "absent")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("strom: queue a: rejected with 1 error\n  spec.parent: ")


def test_delete_deletes_and_reports_absent_objects(strom: Any) -> None:
    strom("queue", "create", "a")
    assert strom("queue", "delete", "a").stdout == "queue.scheduling.volcano.sh/a deleted\n"
    again = strom("queue", "delete", "a")
    assert again.exit_code == 1
    assert again.stderr == ("strom: queue a: not found\nnext: list what exists: strom queue list\n")


def test_a_queue_in_use_is_deleted_only_with_force(api_server: Any, strom: Any) -> None:
    """Its running pods would belong to no queue, and its pending jobs would wait indefinitely."""
    strom("queue", "create", "a")
    strom("queue", "create", "b")
    for name, phase in (("g1", "Running"), ("g2", ""), ("g3", "Completed")):
        api_server.create(kinds.POD_GROUPS, builders.make_pod_group(name, queue="a", phase=phase))
    api_server.create(kinds.POD_GROUPS, builders.make_pod_group("g", queue="b", phase="Completed"))
    kept = strom("queue", "delete", "a", "b")
    assert (kept.exit_code, kept.stdout) == (1, "queue.scheduling.volcano.sh/b deleted\n")
    assert kept.stderr == (
        "strom: queue a: not deleted: it has unfinished PodGroups (1 Pending, 1 Running)\n"
        "next: close it and wait until they end: strom queue close a; "
        "or delete it with --force\n"
    )
    assert strom("queue", "delete", "a", "--force").exit_code == 0


def test_the_default_queue_cannot_be_deleted(strom: Any) -> None:
    refused = strom("queue", "delete", "default")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("strom: queue default: ")


@pytest.mark.parametrize(("action", "command"), [("open", "OpenQueue"), ("close", "CloseQueue")])
def test_operate_creates_a_command_that_the_queue_owns(
    api_server: Any, strom: Any, action: str, command: str
) -> None:
    requested = strom("queue", "operate", "default", "--action", action)
    assert (requested.exit_code, requested.stdout) == (
        0,
        f"queue.scheduling.volcano.sh/default {action} requested\n",
    )
    (made,) = (kinds.COMMANDS.decode(raw) for raw in api_server.all(kinds.COMMANDS))
    assert made.target is not None
    assert (made.action, made.target.kind, made.target.name) == (command, "Queue", "default")
    assert made.metadata.name.startswith(f"default-{command.lower()}-")
    assert made.metadata.owner_references == (made.target,)
    assert strom("queue", "operate", "default").exit_code == 2
    assert strom("queue", "operate", "absent", "-a", "open").exit_code == 1


def test_a_rejection_of_a_queue_names_the_queue(strom: Any) -> None:
    refused = strom("queue", "operate", "root", "--action", "close")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("strom: queue root: rejected with 1 error\n")


def test_update_changes_only_the_given_fields(strom: Any) -> None:
    strom("queue", "create", "a", "--weight", "2", "--capability", "cpu=8,memory=8Gi")
    changed = strom("queue", "update", "a", "--weight", "5", "--capability", "cpu=4")
    assert (changed.exit_code, changed.stdout) == (
        0,
        "queue.scheduling.volcano.sh/a configured\n",
    )
    spec = json.loads(strom("queue", "get", "a", "-o", "json").stdout)["spec"]
    assert (spec["weight"], spec["reclaimable"]) == (5, True)
    assert spec["capability"] == {"cpu": "4", "memory": "8Gi"}
    assert strom("queue", "update", "a", "-w", "5").stdout.endswith(" unchanged\n")


def test_update_needs_something_to_change_and_a_queue(strom: Any) -> None:
    nothing = strom("queue", "update", "default")
    assert nothing.exit_code == 2
    assert "set at least one option" in nothing.stderr
    absent = strom("queue", "update", "absent", "-w", "2")
    assert absent.stderr.startswith("strom: queue absent: not found\n")


def test_wide_has_the_amounts_and_name_is_the_object_alone(strom: Any) -> None:
    strom("queue", "create", "a", "--guarantee", "cpu=1", "--deserved", "cpu=2")
    header, row = (
        line.split() for line in strom("queue", "get", "a", "-o", "wide").stdout.splitlines()[:2]
    )
    assert header[-5:] == ["PRIORITY", "GUARANTEE", "DESERVED", "CAPABILITY", "ALLOCATED"]
    assert row[-5:] == ["0", "cpu=1", "cpu=2", "-", "-"]
    assert "queue.scheduling.volcano.sh/a\n" in strom("queue", "list", "-o", "name").stdout
