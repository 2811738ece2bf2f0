"""Rules of lists with ``--watch``."""

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stromboli.cli import options
from stromboli.cli.render import listing
from stromboli.client.events import Change, ChangeType
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.testkit import builders

AT_ONCE_S = 120
"""Longer than any expected output takes."""


def change(type_: ChangeType, name: str = "", version: int = 1, phase: str = "") -> Change[bytes]:
    if not name:
        return Change(type_)
    job = {
        "metadata": {"name": name, "namespace": "default", "resourceVersion": str(version)},
        "status": {"state": {"phase": phase}},
    }
    return Change(type_, msgspec.json.encode(job))


def news(*changes: Change[bytes], phase: str = "") -> list[list[str] | None]:
    """The output of a list of jobs (of this phase) after each change."""

    def is_wanted(job: batch.Job) -> bool:
        return phase in ("", job.status.state.phase)

    followed = listing.ListWatch(kinds.JOBS.decode, is_wanted)
    fed = [followed.feed(each) for each in changes]
    return [
        None if some is None else [f"{one.type} {one.object.metadata.name}" for one in some]
        for some in fed
    ]


def test_a_watched_list_starts_with_all_objects_by_name() -> None:
    assert news(
        change("added", "b"),
        change("added", "a"),
        change("synced"),
        change("modified", "a", 2),
        change("added", "c", 3),
        change("deleted", "b", 4),
    ) == [None, None, ["ADDED a", "ADDED b"], ["MODIFIED a"], ["ADDED c"], ["DELETED b"]]


def test_after_an_interruption_only_changes_are_printed() -> None:
    assert news(
        change("added", "a"),
        change("added", "b"),
        change("added", "c"),
        change("synced"),
        change("reset"),
        change("added", "a"),
        change("added", "b", 2),
        change("added", "d", 3),
        change("synced"),
    )[-1] == ["MODIFIED b", "DELETED c", "ADDED d"]


def test_an_object_that_leaves_the_filter_is_printed_once_more() -> None:
    assert news(
        change("added", "a", phase="Running"),
        change("added", "b", phase="Pending"),
        change("synced"),
        change("modified", "b", 2, "Completed"),
        change("modified", "a", 3, "Completed"),
        change("deleted", "a", 4, "Completed"),
        phase="Running",
    )[2:] == [["ADDED a"], [], ["DELETED a"], []]


@pytest.fixture
def watch(api_server: Any, tmp_path: Path) -> Iterator[Any]:
    """Starts ``strom ... --watch`` with its output in a pipe. Ctrl-C ends it also where we run in
    the background of a shell, which has what it starts there ignore it."""
    started: list[subprocess.Popen[bytes]] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def start(*arguments: str) -> "Watch":
        strom = Path(sys.executable).with_name("strom")
        process = subprocess.Popen(
            (strom, *arguments, "--watch"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "STROM_SERVER": api_server.url},
        )
        started.append(process)
        return Watch(process)

    yield start
    signal.signal(signal.SIGINT, before)
    for process in started:
        process.kill()
        process.communicate()


class Watch:
    """A list with ``--watch``."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._rest = b""

    def line(self) -> str:
        """The next line, when it is printed."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                assert ready.select(AT_ONCE_S), "nothing came"
                found = os.read(self.process.stdout.fileno(), 65536)
                assert found, "it ended"
                self._rest += found
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def words(self) -> list[str]:
        return self.line().split()


def test_a_list_of_jobs_shows_a_row_for_each_change_until_ctrl_c(
    api_server: Any, strom: Any, watch: Any
) -> None:
    """Unchanged rows are not repeated, and a deleted job is reported."""
    strom("job", "run", "a", "--dry-run")
    strom("job", "run", "a")
    watched = watch("job", "list")
    assert watched.words()[:3] == ["NAME", "QUEUE", "PHASE"]
    assert watched.words()[:3] == ["a", "default", "Pending"]
    api_server.label("a", team="x")
    api_server.set_status("a", "Running", running=1)
    assert watched.words()[2:7] == ["Running", "1", "1", "0", "1"]
    strom("job", "run", "b", "-q", "default")
    assert watched.words()[:3] == ["b", "default", "Pending"]
    strom("job", "delete", "a")
    assert watched.words()[:3] == ["a", "default", "Deleted"]
    watched.process.send_signal(signal.SIGINT)
    out, err = watched.process.communicate(timeout=AT_ONCE_S)
    assert (watched.process.returncode, out, err) == (0, b"", b"")


def test_a_list_for_programs_is_a_line_of_json_for_each_change(
    api_server: Any, strom: Any, watch: Any
) -> None:
    strom("job", "run", "a")
    watched = watch("job", "list", "-o", "json")
    first = json.loads(watched.line())
    assert (first["type"], first["object"]["kind"]) == ("ADDED", "Job")
    api_server.set_status("a", "Running")
    second = json.loads(watched.line())
    assert (second["type"], second["object"]["status"]["state"]["phase"]) == ("MODIFIED", "Running")


def test_an_empty_watched_list_is_reported_and_continues(strom: Any, watch: Any) -> None:
    watched = watch("job", "list")
    assert watched.process.stderr is not None
    assert watched.process.stderr.readline() == b"No jobs found in namespace default.\n"
    strom("job", "run", "a")
    assert [watched.words()[0], watched.words()[0]] == ["NAME", "a"]


def test_a_watched_list_says_that_its_filter_excludes_everything(strom: Any, watch: Any) -> None:
    strom("job", "run", "a")
    watched = watch("job", "list", "--queue", "research")
    assert watched.process.stderr is not None
    note = b"No jobs in namespace default match the filter (1 without it).\n"
    assert watched.process.stderr.readline() == note


def test_pods_gangs_queues_and_crons_are_followed_alike(
    api_server: Any, strom: Any, watch: Any
) -> None:
    labels = {keys.JOB_NAME: "a"}
    api_server.create(kinds.PODS, builders.make_pod("a-w-0", labels=labels, task="w"))
    pods, queues, crons = watch("pod", "list"), watch("queue", "list"), watch("cron", "list", "-A")
    gangs = watch("podgroup", "list", "-o", "name")
    assert [pods.words()[0], pods.words()[0]] == ["NAME", "a-w-0"]
    assert [queues.words()[0], queues.words()[0], queues.words()[0]] == ["NAME", "default", "root"]
    strom("queue", "create", "new")
    assert queues.words()[:2] == ["new", "Open"]
    assert crons.process.stderr is not None
    assert crons.process.stderr.readline() == b"No crons found.\n"
    api_server.create(kinds.POD_GROUPS, builders.make_pod_group("g"))
    assert gangs.words() == ["podgroup.scheduling.volcano.sh/g"]
    cron = {
        "metadata": {"name": "nightly", "namespace": "default"},
        "spec": {
            "schedule": "0 3 * * *",
            "jobTemplate": {"spec": {"tasks": [{"name": "w", "replicas": 1, "template": {"spec": {
                "containers": [{"name": "c", "image": "i"}]}}}]}},
        },
    }  # fmt: skip
    api_server.create(kinds.CRON_JOBS, cron)
    assert [crons.words()[0], crons.words()[:2]] == ["NAMESPACE", ["default", "nightly"]]


def test_me_lists_only_what_the_user_has_submitted() -> None:
    mine = builders.make_job("mine", annotations={keys.USER: "ada"})
    assert options.is_submitted_by("ada", mine)
    assert not options.is_submitted_by("eve", mine)
    assert options.is_submitted_by(None, mine)


def test_me_lists_everything_on_a_server_without_accounts(strom: Any) -> None:
    """Such a server records no user."""
    strom("job", "run", "mine", "--", "true")
    found = json.loads(strom("job", "list", "--me", "-o", "json").stdout)["items"]
    assert [item["metadata"]["name"] for item in found] == ["mine"]
    assert strom("job", "list", "--me", "--user", "eve").exit_code == 2
    assert strom("flow", "list", "--me").exit_code == 0
    assert strom("template", "list", "--me").exit_code == 2
    assert strom("pod", "list", "--me").stderr == "No pods found in namespace default.\n"
