"""Rules of ``strom timeline`` and ``strom lineage``: the life of a job, and evictions."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.cli.commands.accounting import past_jobs
from stromboli.cli.render import gantt
from stromboli.shared.api.views import accounting
from stromboli.testkit.builders import NOON
from stromboli.testkit.doubles import empty_history


def at(second: float) -> Any:
    return NOON + timedelta(seconds=second)


def phase(name: str, second: float, **fields: Any) -> accounting.PhaseChange:
    return accounting.PhaseChange(phase=name, at=at(second), **fields)


def job(uid: str, **fields: Any) -> accounting.JobRecord:
    known: dict[str, Any] = {"namespace": "default", "name": "a", "uid": uid, "queue": "gpu"}
    known |= {"user": "ann", "phase": "Completed", "reason": "", "retry_count": 1}
    known |= {"submitted_at": at(0), "finished_at": at(100), "deleted_at": at(200)}
    phases = (phase("Pending", 0, reason="Accepted"), phase("Completed", 100))
    return accounting.JobRecord(**(known | {"phases": phases} | fields))


def attempt(index: int, bound: float, started: float, ended: float) -> accounting.Attempt:
    known: dict[str, Any] = {"namespace": "default", "job": "a", "uid": "u1", "queue": "gpu"}
    known |= {"user": "ann", "task": "w", "attempt": 1, "retry_count": 0, "pod": f"a-w-{index}"}
    known |= {"submitted_at": at(0), "allocated_at": at(bound), "started_at": at(started)}
    known |= {"ended_at": at(ended), "pod_uid": f"p{index}", "state": "Succeeded", "node": "n1"}
    return accounting.Attempt(index=index, **known)


def eviction(uid: str, by: str, **fields: Any) -> accounting.Eviction:
    known: dict[str, Any] = {"decision": "d", "namespace": "default", "pod": f"{uid}-w-0"}
    known |= {"pod_uid": "p", "job": f"job-{uid}", "uid": uid, "by_namespace": "default"}
    known |= {"by_pod_group": f"g-{by}", "by_job": f"job-{by}", "by_uid": by, "reason": "preempt"}
    return accounting.Eviction(**(known | {"at": at(5)} | fields))


class Past(empty_history.EmptyHistory):
    """Two jobs of one name, attempts and evictions of the last."""

    def __init__(self) -> None:
        super().__init__()
        self.found: tuple[accounting.JobRecord, ...] = (job("u1"), job("u0"))
        self.evicted: tuple[accounting.Eviction, ...] = ()
        self.on_nodes: dict[str, tuple[accounting.Attempt, ...]] = {}

    async def jobs(self, query: accounting.JobQuery) -> accounting.JobPage:
        self.asked.append(query)
        found = [it for it in self.found if query.uid in ("", it.uid)]
        return accounting.JobPage(jobs=tuple(found))

    async def attempts(self, query: accounting.AttemptQuery) -> accounting.AttemptPage:
        self.asked.append(query)
        if query.node:
            return accounting.AttemptPage(attempts=self.on_nodes.get(query.node, ()))
        return accounting.AttemptPage(
            attempts=(attempt(1, 25, 50, 100), attempt(0, 0, 0, 50)) if query.uid == "u1" else ()
        )

    async def evictions(self, query: accounting.EvictionQuery) -> accounting.EvictionPage:
        self.asked.append(query)
        return accounting.EvictionPage(evictions=self.evicted)


@pytest.fixture
def past(api_server: Any) -> Past:
    made = Past()
    api_server.keep_history(made)
    return made


def test_a_nodes_history_has_the_attempts_of_all_namespaces(past: Past, strom: Any) -> None:
    shown = strom("node", "history", "n1", "--since", "2026-01-01", "--device", "GPU-1")
    assert shown.stderr == "No attempts on node n1 found.\n"
    (asked,) = past.asked
    assert (asked.node, asked.namespace, asked.device) == ("n1", "", "GPU-1")
    assert asked.since is not None
    past.on_nodes["n1"] = (attempt(0, 0, 0, 50),)
    lines = strom("node", "history", "n1").stdout.splitlines()
    assert lines[0].split()[:4] == ["ALLOCATED", "AT", "ENDED", "AT"]
    assert lines[1].split()[4:9] == ["default", "a", "w", "0", "ann"]
    found = json.loads(strom("node", "history", "n1", "-o", "json").stdout)
    assert [(each["job"], each["node"]) for each in found] == [("a", "n1")]


def test_a_timeline_has_phases_and_a_bar_for_each_attempt(past: Past, strom: Any) -> None:
    shown = strom("timeline", "a")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["job", "default/a"] in lines
    assert ["user", "ann"] in lines
    assert ["2026-01-01", "12:00:00", "0s", "Pending", "-"] in lines
    assert ["2026-01-01", "12:01:40", "100s", "Completed", "-"] in lines
    assert ["2026-01-01", "12:03:20", "3m20s", "Deleted", "-"] in lines
    bars = [line for line in lines if line[:1] == ["w"]]
    assert [(it[1], it[-1]) for it in bars] == [
        ("0", "#" * 20),
        ("1", "." * 10 + "-" * 10 + "#" * 20),
    ]
    assert "strom timeline a --uid u0" in shown.stderr
    assert (past.asked[0].name, past.asked[1].uid) == ("a", "u1")


def test_a_timeline_says_who_suspended_changed_and_deleted_the_job(past: Past, strom: Any) -> None:
    requests = (
        accounting.JobRequest(at=at(50), user="bob", action="AbortJob"),
        accounting.JobRequest(at=at(60), user="bob", action="ChangeJob", detail="queue a -> b"),
        accounting.JobRequest(at=at(150), user="ann", action="DeleteJob"),
    )
    past.found = (job("u1", requests=requests),)
    shown = strom("timeline", "a").stdout
    assert "2026-01-01 12:03:20 UTC by ann" in shown
    lines = [" ".join(line.split()[2:]) for line in shown.splitlines()]
    assert lines[lines.index("0s Pending -") :][:6] == [
        "0s Pending -",
        "50s - suspended by bob",
        "60s - changed by bob: queue a -> b",
        "100s Completed -",
        "2m30s - deletion requested by ann",
        "3m20s Deleted -",
    ]


def test_a_timeline_of_an_earlier_job_is_selected_by_uid(past: Past, strom: Any) -> None:
    found = json.loads(strom("timeline", "a", "--uid", "u0", "-o", "json").stdout)
    assert (found["uid"], found["attempts"]) == ("u0", [])
    assert [it["phase"] for it in found["phases"]] == ["Pending", "Completed"]


def test_an_unknown_job_is_not_found(past: Past, strom: Any) -> None:
    past.found = ()
    for command in ("timeline", "lineage"):
        refused = strom(command, "a")
        assert refused.exit_code == 1
        assert "job default/a: the history has no such job" in refused.stderr
        assert "strom history -n default" in refused.stderr


def test_a_lineage_lists_evictions_of_the_job_and_for_it(past: Past, strom: Any) -> None:
    past.evicted = (
        eviction("u1", "u2"),
        eviction("", "u1", pod="", job="", namespace="other"),
        eviction("u1", "u3", refused="finished"),
    )
    lines = strom("lineage", "a").stdout.splitlines()
    assert lines[0].split() == ["TIME", "POD", "OF", "JOB", "FOR", "REASON"]
    assert lines[1].split()[2:] == ["u1-w-0", "default/job-u1", "default/job-u2", "preempt"]
    assert lines[2].split()[2:] == ["-", "other/-", "default/job-u1", "preempt"]
    assert lines[3].endswith("not carried out: finished")


def test_a_job_without_evictions_has_a_note(past: Past, strom: Any) -> None:
    shown = strom("lineage", "a")
    assert (shown.stdout, shown.stderr) == (
        "",
        "No evictions of pods of default/a, and none that made room for it.\n",
    )


def test_jobs_that_evict_each_other_are_named_with_their_numbers() -> None:
    found = [eviction("u1", "u2"), eviction("u1", "u2"), eviction("u2", "u1")]
    (line,) = past_jobs.mutual("u1", found)
    assert "default/job-u2 and this job evict each other" in line
    assert "it lost 1 pods, this job lost 2" in line
    one_way = [eviction("u1", "u2"), eviction("u2", "u1", refused="finished")]
    assert list(past_jobs.mutual("u1", one_way)) == []


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=3), st.integers(0, 1000))
def test_a_bar_has_its_width_and_an_end(begins: list[int], length: int) -> None:
    """The last step is visible in any interval that contains it, as short as it may be."""
    begins.sort()
    steps = [(sign, at(second)) for sign, second in zip("abc", begins, strict=False)]
    shown = gantt.bar(steps, at(begins[-1] + length), at(0), at(2000), 40)
    assert len(shown) == 40
    assert steps[-1][0] in shown
