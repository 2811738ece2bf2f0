"""Rules of ``strom timeline`` and ``strom lineage``: the life of a job, and evictions."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.cli.commands.accounting import past_jobs
from stromboli.cli.render import gantt
from stromboli.shared.api.views import accounting
from stromboli.shared.messages.scheduling import PodGroupExplained
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
        self.changed: tuple[accounting.ClusterChange, ...] = ()
        self.explained: tuple[accounting.PastExplanation, ...] = ()
        self.positions: tuple[accounting.QueuePosition, ...] = ()
        self.on_nodes: dict[str, tuple[accounting.Attempt, ...]] = {}

    async def jobs(self, query: accounting.JobQuery) -> accounting.JobPage:
        self.requested.append(query)
        records = [it for it in self.found if query.uid in ("", it.uid)]
        return accounting.JobPage(jobs=tuple(records))

    async def attempts(self, query: accounting.AttemptQuery) -> accounting.AttemptPage:
        self.requested.append(query)
        if query.node:
            return accounting.AttemptPage(attempts=self.on_nodes.get(query.node, ()))
        return accounting.AttemptPage(
            attempts=(attempt(1, 25, 50, 100), attempt(0, 0, 0, 50)) if query.uid == "u1" else ()
        )

    async def evictions(self, query: accounting.EvictionQuery) -> accounting.EvictionPage:
        self.requested.append(query)
        return accounting.EvictionPage(evictions=self.evicted)

    async def changes(self, query: accounting.ChangeQuery) -> accounting.ChangePage:
        self.requested.append(query)
        return accounting.ChangePage(changes=self.changed)

    async def explanations(self, query: accounting.ExplanationQuery) -> accounting.ExplanationPage:
        self.requested.append(query)
        return accounting.ExplanationPage(explanations=self.explained, positions=self.positions)


@pytest.fixture
def past(api_server: Any) -> Past:
    made = Past()
    api_server.keep_history(made)
    return made


def test_a_nodes_history_has_the_attempts_of_all_namespaces(past: Past, strom: Any) -> None:
    shown = strom("node", "history", "n1", "--since", "2026-01-01", "--device", "GPU-1")
    assert shown.stderr == "No attempts on node n1 found.\n"
    (requested,) = past.requested
    assert (requested.node, requested.namespace, requested.device) == ("n1", "", "GPU-1")
    assert requested.since is not None
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
    assert (past.requested[0].name, past.requested[1].uid) == ("a", "u1")


def test_a_timeline_has_one_reason_for_the_last_phase(past: Past, strom: Any) -> None:
    """The one of the last change, with numbers, and not a general text of its code."""
    why = {"reason": "Stopped", "message": "1 of 6 indexes failed"}
    past.found = (job("u1", phase="Failed", reason="Stopped", phases=(phase("Failed", 9, **why),)),)
    lines = [line.split(None, 1) for line in strom("timeline", "a").stdout.splitlines()]
    assert ["phase", "Failed (1 of 6 indexes failed)"] in lines


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
    evictions = [eviction("u1", "u2"), eviction("u1", "u2"), eviction("u2", "u1")]
    (line,) = past_jobs.mutual("u1", evictions)
    assert "default/job-u2 and this job evict each other" in line
    assert "it lost 1 pod, this job lost 2" in line
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


def explanation(second: float, tier: Any) -> accounting.PastExplanation:
    """The scheduler explains the job with the uid u1; an empty tier: nothing blocks it."""
    explained = PodGroupExplained(
        pod_group="default/a-u1", pod_group_uid="g", queue="gpu", phase="Inqueue", tier=tier,
        message="", min_member=2, members=2, running=0, pending=2, placeable=0,
    )  # fmt: skip
    document = msgspec.json.decode(msgspec.json.encode(explained)) if tier else None
    return accounting.PastExplanation(
        at=at(second), namespace="default", pod_group="a-u1", explained=document
    )


def position(second: float, in_front: int) -> accounting.QueuePosition:
    return accounting.QueuePosition(at=at(second), pod_group="a-u1", queue="gpu", in_front=in_front)


def test_a_timeline_says_why_the_job_was_pending_and_for_how_long(past: Past, strom: Any) -> None:
    past.explained = (explanation(30, ""), explanation(20, "resources"), explanation(1, "enqueue"))
    past.positions = (position(21, 0), position(15, 1), position(2, 7))
    lines = [line.split("  ") for line in strom("timeline", "a").stdout.splitlines()]
    waits = [[part.strip() for part in line if part] for line in lines if "admit" in str(line)]
    assert waits == [
        [
            "2026-01-01 12:00:01",
            "19s",
            "insufficient resources to admit it to its queue",
            "7 to 1",
        ]
    ]
    document = json.loads(strom("timeline", "a", "-o", "json").stdout)
    assert [it["explained"] and it["explained"]["tier"] for it in document["explanations"]] == [
        None,
        "resources",
        "enqueue",
    ]
    assert [it["inFront"] for it in document["positions"]] == [0, 1, 7]


def test_a_job_is_explained_at_a_past_time_from_the_history(past: Past, strom: Any) -> None:
    past.explained, past.positions = (explanation(20, "share"),), (position(15, 2),)
    shown = strom("explain", "a", "--at", at(40).isoformat()).stdout.splitlines()
    assert shown[0] == (
        f"default/a was pending at {at(40).isoformat()}: its queue has reached its share."
    )
    assert "  queue      gpu, position 3 as of 2026-01-01 12:00:15" in shown
    assert shown[-1] == "  as of      2026-01-01 12:00:20 UTC"
    requested = past.requested[-1]
    assert (requested.uid, requested.namespace, requested.limit) == ("u1", "default", 1)
    assert requested.until == at(40) + timedelta(microseconds=1)


def test_a_job_that_was_not_blocked_or_not_there_is_said_so(past: Past, strom: Any) -> None:
    shown = strom("explain", "a", "--at", at(40).isoformat())
    assert "was Pending" in shown.stdout
    assert "the scheduler had not explained it" in shown.stdout
    past.explained = (explanation(20, ""),)
    shown = strom("explain", "a", "--at", at(120).isoformat())
    assert "was not blocked" in shown.stdout
    assert shown.stdout.endswith("it was Completed.\n")
    refused = strom("explain", "a", "--at", at(-1).isoformat())
    assert refused.exit_code == 1
    assert "the history has no such job at" in refused.stderr
    refused = strom("explain", "a", "--at", at(300).isoformat())
    assert "it was deleted at" in refused.stderr


def test_a_nodes_history_has_its_changes_and_the_errors_of_its_gpus(past: Past, strom: Any) -> None:
    def field(name: str, before: str, after: str) -> accounting.FieldChange:
        return accounting.FieldChange(field=name, before=before, after=after)

    def change(kind: str, second: float, *fields: accounting.FieldChange) -> Any:
        return accounting.ClusterChange(
            at=at(second), kind=kind, name="n1", action="changed", fields=fields
        )

    past.changed = (
        change("Queue", 9, field("spec.weight", "1", "2")),
        change("Hardware", 5, field("gpus.GPU-0", "healthy", "Xid 79")),
        change("Node", 1, field("conditions.Ready", "True", "False")),
    )
    called = ("node", "history", "n1", "--changes")
    lines = strom(*called, "--since", "2026-01-01").stdout.splitlines()
    assert lines[0].split() == ["AT", "KIND", "ACTION", "FIELD", "BEFORE", "AFTER"]
    assert [line.split()[2:] for line in lines[1:]] == [
        ["Hardware", "changed", "gpus.GPU-0", "healthy", "Xid", "79"],
        ["Node", "changed", "conditions.Ready", "True", "False"],
    ]
    (requested,) = past.requested
    assert (requested.name, requested.kind) == ("n1", "")
    of_gpu = json.loads(strom(*called, "--device", "GPU-0", "-o", "json").stdout)
    assert [it["after"] for it in of_gpu] == ["Xid 79"]
    written = strom(*called, "-o", "csv").stdout.splitlines()
    assert written[0] == "at,kind,action,field,before,after"
    assert written[1].endswith("Hardware,changed,gpus.GPU-0,healthy,Xid 79")
    past.changed = ()
    assert strom(*called).stderr == "No changes of this node found.\n"
