"""Rules of ``strom podgroup``."""

import json
from typing import Any

import msgspec
import pytest

from stromboli.cli.commands import pod_groups
from stromboli.shared.api import batch, kinds, scheduling
from stromboli.testkit import builders

WAITS = "3/4 tasks in gang unschedulable"


def condition(status: str) -> scheduling.PodGroupCondition:
    return scheduling.PodGroupCondition(
        type="Unschedulable",
        status=status,
        reason="NotEnoughResources",
        message=WAITS,
        last_transition_time=builders.NOON,
    )


def gang(status: str = "True", owner: batch.Job | None = None) -> scheduling.PodGroup:
    """A pending gang, unless a condition is given."""
    group = builders.make_pod_group(
        "train-1",
        4,
        queue="research",
        min_task_member={"ps": 1, "worker": 3},
        min_resources={"cpu": "4"},
        priority_class="high",
        owner=owner,
    )
    news = msgspec.structs.replace(group.status, conditions=(condition(status),), running=1)
    return msgspec.structs.replace(group, status=news)


@pytest.fixture
def groups(api_server: Any) -> None:
    """A pending gang, and one without a status."""
    api_server.create(kinds.QUEUES, builders.make_queue("research"))
    api_server.create(kinds.POD_GROUPS, gang())
    api_server.create(kinds.POD_GROUPS, builders.make_pod_group("podgroup-1", phase=""))


@pytest.mark.usefixtures("groups")
def test_list_shows_gangs_of_all_owners(strom: Any) -> None:
    shown = [line.split() for line in strom("podgroup", "list").stdout.splitlines()]
    assert shown[0] == list(pod_groups.HEADERS)
    assert shown[1][:3] == ["podgroup-1", "Pending", "default"]
    assert shown[2][:7] == ["train-1", "Inqueue", "research", "4", "1", "0", "0"]
    everywhere = strom("podgroup", "list", "-A").stdout.splitlines()
    assert everywhere[1].split()[:2] == ["default", "podgroup-1"]
    elsewhere = strom("podgroup", "list", "-n", "other")
    assert elsewhere.stderr == "No PodGroups found in namespace other.\n"


@pytest.mark.usefixtures("groups")
def test_list_filters_by_queue_and_prints_names(strom: Any) -> None:
    listed = json.loads(strom("podgroup", "list", "-q", "research", "-o", "json").stdout)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["train-1"]
    named = strom("podgroup", "list", "-q", "research", "-o", "name").stdout
    assert named == "podgroup.scheduling.volcano.sh/train-1\n"


def test_wide_rows_have_owner_requests_and_reason() -> None:
    owned = gang(owner=builders.make_job("train"))
    assert pod_groups.wide_cells(owned) == ("Job/train", "high", "cpu=4", WAITS)
    assert "owner         Job/train" in pod_groups.facts(owned)
    assert not any(line.startswith("owner") for line in pod_groups.facts(gang()))


def test_a_condition_that_is_false_is_no_reason() -> None:
    assert pod_groups.unschedulable_message(gang("False")) == ""


@pytest.mark.usefixtures("groups")
def test_get_shows_the_spec_and_the_conditions(strom: Any) -> None:
    lines = strom("podgroup", "get", "train-1").stdout.splitlines()
    assert "min member    4 (ps=1,worker=3)" in lines
    assert lines[-1].split()[:3] == ["Unschedulable", "True", "NotEnoughResources"]
    assert lines[-1].endswith(WAITS)
    short = strom("podgroup", "get", "podgroup-1").stdout
    assert "TYPE" not in short
    document = json.loads(strom("podgroup", "get", "train-1", "-o", "json").stdout)
    assert document["kind"] == "PodGroup"


def test_an_absent_pod_group_is_reported(strom: Any) -> None:
    result = strom("podgroup", "get", "none")
    assert result.exit_code == 1
    assert result.stderr.startswith("strom: podgroup default/none: ")


@pytest.mark.usefixtures("groups")
def test_the_shell_completes_its_name(strom: Any) -> None:
    words = {
        "_STROM_COMPLETE": "complete_bash",
        "COMP_WORDS": "strom podgroup get tr",
        "COMP_CWORD": "3",
    }
    assert strom(env=words).stdout.split() == ["train-1"]
