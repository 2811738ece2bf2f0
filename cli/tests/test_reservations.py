"""Rules of ``strom reservation`` and of ``strom job run --reservation``."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from stromboli.cli.commands import reservations as commands
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.jobspec import reservations
from stromboli.testkit import builders

COURSE = ("course", "--start", "2036-12-01T08:00:00Z", "--duration", "4h")


def test_a_reservation_is_created_once_listed_shown_and_deleted(strom: Any) -> None:
    made = strom("reservation", "create", *COURSE, "--all-nodes", "--user", "ann", "--queue", "q")
    assert made.stderr == ""
    assert made.stdout == "advancereservation.scheduling.stromboli.sh/course created\n"
    head, row = strom("reservation", "list").stdout.splitlines()
    assert head.split() == list(commands.HEADERS)
    assert row.split() == [
        *("course", "Planned", "2036-12-01", "08:00:00", "2036-12-01", "12:00:00"),
        *("all", "user:ann", "queue:q"),
    ]
    assert strom("reservation", "get", "course").stdout.splitlines()[1] == row
    shown = json.loads(strom("get", "reservation", "course", "-o", "json").stdout)
    assert shown["spec"] == {
        "startTime": "2036-12-01T08:00:00+00:00",
        "duration": "4h",
        "users": ["ann"],
        "queues": ["q"],
        "allNodes": True,
    }
    again = strom("reservation", "create", *COURSE, "--all-nodes", "--user", "bob")
    assert again.exit_code == 1
    assert "reservation course: it exists already" in again.stderr
    assert strom("reservation", "list").stdout.splitlines()[1] == row
    assert "deleted" in strom("reservation", "delete", "course").stdout
    assert strom("reservation", "list").stderr == "No reservations found.\n"


def test_a_number_of_nodes_becomes_names(strom: Any, api_server: Any) -> None:
    for name in ("n1", "n2", "n3"):
        api_server.create(kinds.NODES, builders.make_node(name))
    strom("reservation", "create", *COURSE, "--node", "n2", "--user", "ann")
    other = ("other", *COURSE[1:], "--maintenance")
    strom("reservation", "create", *other, "--node-count", "2")
    found = json.loads(strom("get", "reservation", "other", "-o", "json").stdout)
    assert found["spec"]["nodeNames"] == ["n1", "n3"]
    third = ("third", *COURSE[1:], "--user", "bob", "--node-count", "1")
    refused = strom("reservation", "create", *third)
    assert "it needs 1 node; available in this period: 0" in refused.stderr


@pytest.mark.parametrize(
    ("period", "labels", "expected"),
    [
        ((0, 1), {}, ["n1", "n3"]),
        ((0, 1), {"rack": "a"}, ["n1"]),
        ((2, 3), {"rack": "a"}, ["n1", "n2"]),
    ],
)
def test_free_nodes_are_schedulable_and_in_no_other_reservation(
    period: tuple[int, int], labels: dict[str, str], expected: list[str]
) -> None:
    nodes = [
        builders.make_node("n1", labels={"rack": "a"}),
        builders.make_node("n2", labels={"rack": "a"}),
        builders.make_node("n3"),
        builders.make_node("n4", unschedulable=True),
    ]
    hour = timedelta(hours=1)
    taken = [builders.make_reservation("r", builders.NOON, 2 * hour, "n2")]
    wanted = reservations.Period(*(builders.NOON + at * hour for at in period))
    assert commands.free_nodes(wanted, labels, nodes, taken) == expected


@pytest.mark.parametrize(
    ("hours", "state"), [((-3, -1), "Ended"), ((-1, 1), "Active"), ((1, 2), "Planned")]
)
def test_the_state_follows_from_the_period(hours: tuple[int, int], state: str) -> None:
    hour = timedelta(hours=1)
    start, end = (builders.NOON + at * hour for at in hours)
    reservation = builders.make_reservation("r", start, end - start, "n1", "n2")
    cells = commands.row(reservation, builders.NOON)
    assert (cells[1], *cells[4:]) == (state, "n1,n2", "maintenance")
    broken = msgspec.structs.replace(reservation.spec, end_time=None)
    invalid = msgspec.structs.replace(reservation, spec=broken)
    assert commands.row(invalid, builders.NOON)[1] == "Invalid"


def test_times_may_be_relative(strom: Any) -> None:
    made = strom("reservation", "create", "r", "--start", "+2h", "--end", "+3h", "--all-nodes",
                 "--maintenance")  # fmt: skip
    assert made.stderr == ""
    found = json.loads(strom("get", "reservation", "r", "-o", "json").stdout)["spec"]
    start, end = (datetime.fromisoformat(found[field]) for field in ("startTime", "endTime"))
    assert end - start == timedelta(hours=1)
    assert abs(start - datetime.now(UTC) - timedelta(hours=2)) < timedelta(minutes=10)
    refused = strom("reservation", "create", "r", "--start", "soon")
    assert "write 2026-12-01T08:00:00Z, now or +2h" in refused.stderr


def test_a_job_names_its_reservation(strom: Any) -> None:
    shown = strom("job", "run", "a", "--image", "busybox", "--reservation", "course",
                  "--dry-run", "-o", "json")  # fmt: skip
    annotations = json.loads(shown.stdout)["metadata"]["annotations"]
    assert annotations[keys.RESERVATION] == "course"
