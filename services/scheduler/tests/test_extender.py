"""The extender plugin: its requests, the effect of responses, and of missing ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support import default_sessions, sessions
from stromboli.scheduler.core import plugins, simulate
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.framework import external_calls, opening, plugin_isolation, session
from stromboli.shared import decoding
from stromboli.shared.api import meta
from stromboli.testkit import builders

Script = Mapping[str, Callable[[Any], Any]]
"""Verb -> what is answered to a body; raising is no answer."""
GPUS, ONE = {"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 1}
NODES = [builders.make_node(name, cpu="4", extra=GPUS) for name in ("n1", "n2", "n3")]
QUEUE = builders.make_queue()


class Extender:
    """Responds by a script and records its requests."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requested: list[tuple[str, Any]] = []

    def __call__(
        self, questions: Sequence[external_calls.ExternalRequest]
    ) -> list[external_calls.ExternalResponse]:
        return [self._answer(question) for question in questions]

    def _answer(self, question: external_calls.ExternalRequest) -> external_calls.ExternalResponse:
        verb, body = question.url.rpartition("/")[2], msgspec.json.decode(question.body)
        self.requested.append((verb, body))
        try:
            reported = self._script[verb](body)
        except OSError as error:
            return external_calls.ExternalResponse(error=str(error))
        return external_calls.ExternalResponse(msgspec.json.encode(reported).decode())

    def count(self, verb: str) -> int:
        return sum(requested == verb for requested, _ in self.requested)


def silent(body: Any) -> Any:
    raise OSError("connection refused")


def held(
    asks: external_calls.Ask | None,
    verbs: Sequence[str],
    *objects: meta.Object,
    run: str = "enqueue, allocate",
    **arguments: Any,
) -> session.Session:
    """A session with an extender and the usual plugins in one tier."""
    given = {
        "extender.urlPrefix": "http://extender/",
        **{f"extender.{verb}Verb": verb for verb in verbs},
        **{f"extender.{name}": value for name, value in arguments.items()},
    }
    configured = sessions.configured(
        [sessions.plugin("extender", given), *default_sessions.TIER], run=run
    )
    cluster = sessions.given([QUEUE, *NODES, *objects])
    model, _ = opening.build_model(configured, cluster)
    moment = cluster_objects.Cluster(now=cluster.now)
    return plugin_isolation.run_isolated(
        configured,
        lambda how, find: opening.open_on_model(
            model, how, moment, find, calls=external_calls.ExternalCalls(asks)
        ),
        simulate.run_actions,
        plugins.find,
        cluster.now,
        plugin_isolation.FailureHistory(),
    )


def only(name: str) -> Callable[[Any], Any]:
    """Nodes but one are refused."""
    return lambda body: {"status": "" if body["node"]["Name"] == name else "not mine", "code": 3}


def test_a_predicate_refuses_nodes_and_its_words_are_the_explanation() -> None:
    extender = Extender({"predicate": lambda body: {"status": "no licence", "code": 3}})
    closed = held(extender, ["predicate"], *default_sessions.gang("g", 2))
    assert closed.decisions.binds == {}
    assert "3 no licence" in simulate.summarize("", closed).explanations["default/g"]
    closed = held(
        Extender({"predicate": only("n2")}), ["predicate"], *default_sessions.gang("g", 2)
    )
    assert default_sessions.binds(closed) == {"g-0": "n2", "g-1": "n2"}


def test_equal_tasks_share_a_request_and_changed_nodes_are_sent_again() -> None:
    """Three nodes for the role, and one more question for each placement but the last."""
    extender = Extender({"predicate": lambda body: {}})
    closed = held(extender, ["predicate"], *default_sessions.gang("g", 4, min_member=1))
    assert len(closed.decisions.binds) == 4
    assert extender.count("predicate") <= 3 + 4


def test_a_node_that_can_never_take_the_task_is_not_sent() -> None:
    extender = Extender({"predicate": lambda body: {}})
    held(extender, ["predicate"], *default_sessions.gang("g", 1, cpu="9"))
    assert extender.requested == []


def test_it_is_sent_the_fields_names() -> None:
    extender = Extender({"predicate": lambda body: {}})
    held(extender, ["predicate"], *default_sessions.gang("g", 1, cpu="2"))
    _, body = extender.requested[0]
    assert body["task"]["Name"] == "g-0"
    assert body["task"]["Resreq"]["MilliCPU"] == 2000
    assert body["task"]["Status"] == 1
    assert body["task"]["Pod"]["metadata"]["name"] == "g-0"
    assert body["node"]["Name"] == "n1"
    assert body["node"]["Idle"]["ScalarResources"]["nvidia.com/gpu"] == 2000


def test_the_best_score_decides_among_nodes_that_fit() -> None:
    scores = {"n1": 0.0, "n2": 5.5, "n3": 90.25}
    extender = Extender({"prioritize": lambda body: {"nodeScore": scores}})
    closed = held(extender, ["prioritize"], *default_sessions.gang("g", 1))
    assert default_sessions.binds(closed) == {"g-0": "n3"}
    assert [node["Name"] for node in extender.requested[0][1]["nodes"]] == ["n1", "n2", "n3"]


FULL = [
    builders.make_priority_class("urgent", 100),
    *(
        each
        for node in ("n1", "n2", "n3")
        for each in default_sessions.gang(f"low-{node}", 4, node=node, min_member=1, cpu="1")
    ),
    builders.make_pod_group("high", 1, priority_class="urgent"),
    builders.make_pod("high-0", "high", cpu="1"),
]
"""Three nodes full of what may go for a gang of higher priority."""


@pytest.mark.parametrize(("status", "goes"), [(1, "low-n2-1"), (0, "low-n1-3"), (-1, "")])
def test_only_its_victims_are_evicted_and_an_abstention_has_no_effect(
    status: int, goes: str
) -> None:
    """By its vote: permit, abstain, reject."""

    def choose(body: Any) -> Any:
        named = [each for each in body["evictees"] if each["Name"] == "low-n2-1"]
        return {"status": status, "victims": named if status > 0 else None}

    closed = held(Extender({"preemptable": choose}), ["preemptable"], *FULL, run="preempt")
    assert "".join(each.task.partition("/")[2] for each in closed.decisions.evictions) == goes


def test_a_queue_it_calls_overused_gets_nothing() -> None:
    extender = Extender({"queueOverused": lambda body: {"overused": bool(body["queue"]["Name"])}})
    assert held(extender, ["queueOverused"], *default_sessions.gang("g", 1)).decisions.binds == {}


@pytest.mark.parametrize(("status", "enters"), [(1, True), (0, True), (-1, False)])
def test_its_vote_enqueues_the_job(status: int, enters: bool) -> None:
    """And it is notified of enqueued jobs."""
    waiting = builders.make_pod_group("g", 1, phase="Pending", min_resources={"cpu": "1"})
    extender = Extender({"jobEnqueueable": lambda body: {"status": status}, "jobEnqueued": dict})
    closed = held(extender, ["jobEnqueueable", "jobEnqueued"], waiting)
    assert (closed.decisions.admitted == ["default/g"]) is enters
    assert extender.count("jobEnqueued") == enters


def test_a_job_it_calls_unready_is_not_bound() -> None:
    extender = Extender({"jobReady": lambda body: {"status": False}})
    assert held(extender, ["jobReady"], *default_sessions.gang("g", 1)).decisions.binds == {}


def test_placements_are_sent_and_a_refused_one_binds_nothing() -> None:
    """Earlier events are undone."""

    def take(body: Any) -> Any:
        return {"errorMessage": "full" if body["task"]["Name"] == "g-1" else ""}

    verbs = ["allocateFunc", "deallocateFunc"]
    extender = Extender({"allocateFunc": take, "deallocateFunc": lambda body: {}})
    closed = held(extender, verbs, *default_sessions.gang("g", 2))
    assert closed.decisions.binds == {}
    assert extender.count("deallocateFunc") == extender.count("allocateFunc") > 0
    assert any("g-1" in text and "full" in text for text in closed.complaints)
    ignored = held(
        Extender({"allocateFunc": take}), verbs[:1], *default_sessions.gang("g", 2), ignorable=True
    )
    assert len(ignored.decisions.binds) == 2


def test_tasks_that_ask_for_none_of_its_resources_are_not_its_business() -> None:
    extender = Extender({"predicate": lambda body: {"status": "no"}, "allocateFunc": dict})
    closed = held(
        extender,
        ["predicate", "allocateFunc"],
        *default_sessions.gang("plain", 1),
        *default_sessions.gang("wants", 1, extra=ONE),
        managedResources=[{"name": "nvidia.com/gpu"}],
    )
    assert list(default_sessions.binds(closed)) == ["plain-0"]
    assert {body["task"]["Name"] for _, body in extender.requested} == {"wants-0"}


VERBS = ("predicate", "queueOverused", "jobEnqueueable", "jobReady", "allocateFunc")
WAITING = builders.make_pod_group("door", 1, phase="Pending", min_resources={"cpu": "1"})


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("is_ignorable", [False, True])
def test_without_an_answer_it_refuses_unless_it_may_be_ignored(
    verb: str, is_ignorable: bool
) -> None:
    """It is not called again in this session: an unavailable extender costs one timeout."""
    extender = Extender({verb: silent})
    closed = held(
        extender,
        [verb],
        WAITING,
        *default_sessions.gang("g", 2),
        *default_sessions.gang("h", 2),
        ignorable=is_ignorable,
    )
    decided = closed.decisions
    assert bool(decided.admitted if verb == "jobEnqueueable" else decided.binds) is is_ignorable
    assert extender.count(verb) <= len(NODES)  # of one batch
    assert any("connection refused" in text for text in closed.complaints)


@pytest.mark.parametrize("is_ignorable", [False, True])
def test_without_a_response_no_pod_is_evicted(is_ignorable: bool) -> None:
    """May it be ignored or not: what an answer would have protected stays."""
    closed = held(
        Extender({"preemptable": silent}),
        ["preemptable"],
        *FULL,
        run="preempt",
        ignorable=is_ignorable,
    )
    assert closed.decisions.evictions == []


def test_an_invalid_response_counts_as_missing() -> None:
    extender = Extender({"predicate": lambda body: ["what"]})
    closed = held(extender, ["predicate"], *default_sessions.gang("g", 1))
    assert closed.decisions.binds == {}
    assert any("cannot be read" in text for text in closed.complaints)


def test_an_unanswered_opening_disables_the_extender_for_the_session() -> None:
    """None of its functions is registered then; an ignorable extender is called again."""
    verbs = ["onSessionOpen", "predicate", "onSessionClose"]
    deaf = Extender({"onSessionOpen": silent})
    closed = held(deaf, verbs, *default_sessions.gang("g", 1))
    assert len(closed.decisions.binds) == 1
    assert [verb for verb, _ in deaf.requested] == ["onSessionOpen"]
    called = Extender({"onSessionOpen": dict, "predicate": lambda body: {}, "onSessionClose": dict})
    held(called, verbs, *default_sessions.gang("g", 1))
    reported = dict(called.requested)
    assert sorted(reported["onSessionOpen"]["Jobs"]) == ["default/g"]
    assert reported["onSessionOpen"]["NodeList"] == ["n1", "n2", "n3"]
    assert called.requested[-1][0] == "onSessionClose"


def test_what_was_answered_decides_the_same_again() -> None:
    """In the order of calls; the extender need not run."""
    extender = Extender({"predicate": only("n3"), "prioritize": lambda body: {"nodeScore": {}}})
    verbs = ["predicate", "prioritize"]
    first = held(extender, verbs, *default_sessions.gang("g", 3))
    record = decoding.from_json(msgspec.json.encode(first.outside.record), list[external_calls.Run])
    again = held(external_calls.replay_responses(record), verbs, *default_sessions.gang("g", 3))
    assert again.decisions == first.decisions
    with pytest.raises(
        external_calls.ReplayMismatchError, match="was not called in the recorded session"
    ):
        held(external_calls.replay_responses(record[:1]), verbs, *default_sessions.gang("g", 3))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"httpTimeout": "soon"}, "httpTimeout: 'soon' is not a positive duration"),
        ({"httpTimeout": "-1s"}, "httpTimeout: '-1s' is not a positive duration"),
        ({"managedResources": "cpu"}, "managedResources: 'cpu' is not a list of names"),
        ({"urlPrefix": "extender:80"}, "urlPrefix: 'extender:80' is not an http:// or https://"),
        ({"ignorable": "maybe"}, "ignorable: 'maybe' is not true or false"),
    ],
)
def test_a_meaningless_argument_is_reported(arguments: dict[str, Any], complaint: str) -> None:
    extender = Extender({"predicate": lambda body: {}})
    closed = held(extender, ["predicate"], *default_sessions.gang("g", 1), **arguments)
    assert any(complaint in text for text in closed.complaints)
    assert len(closed.decisions.binds) == 1


def test_explanations_after_the_session_send_no_request() -> None:
    """A gang that was not tried is explained without the extender."""
    extender = Extender({"predicate": only("n2")})
    closed = held(extender, ["predicate"], *default_sessions.gang("g", 1), run="enqueue")
    (task,) = closed.jobs["default/g"].pending
    assert closed.finder.filter_result(task).passed.all()
    assert extender.requested == []


def test_responses_stay_valid_after_the_session() -> None:
    extender = Extender({"predicate": only("n2")})
    closed = held(extender, ["predicate"], *default_sessions.gang("g", 2, cpu="3"))
    requested = len(extender.requested)
    (task,) = closed.jobs["default/g"].pending[:1]
    assert closed.finder.filter_result(task).passed.tolist() == [False, True, False]
    assert len(extender.requested) == requested
