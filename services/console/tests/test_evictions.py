"""Evictions: who lost pods to whom and why; names of other namespaces are hidden."""

from datetime import UTC, datetime

import pytest

from stromboli.console.core import evictions
from stromboli.shared.api.views.accounting import Eviction

AT = datetime(2026, 11, 23, 12, tzinfo=UTC)


def eviction(
    of: str, by: str, *, reason: str = "preempt", refused: str = "", number: int = 0
) -> Eviction:
    """An eviction of a pod of a job, written as ``namespace/name``, for another one."""
    (namespace, job), (by_namespace, by_job) = of.split("/"), by.split("/")
    return Eviction(
        decision=f"scheduler/0/{number}",
        namespace=namespace,
        pod=f"{job}-worker-0",
        pod_uid="p",
        job=job,
        uid=of,
        by_namespace=by_namespace,
        by_pod_group=f"{by_job}-uid",
        by_job=by_job,
        by_uid=by,
        reason=reason,
        refused=refused,
        at=AT,
    )


def test_a_row_names_both_jobs_to_a_reader_of_all_namespaces() -> None:
    (row,) = evictions.rows([eviction("vision/a", "speech/b")], "")
    assert (row.victim.namespace, row.victim.job) == ("vision", "a")
    assert (row.evictor.namespace, row.evictor.job) == ("speech", "b")


def test_a_reader_of_one_namespace_sees_no_name_of_another_one() -> None:
    """REST leaves out victims of other namespaces; the console also leaves out preemptors, as
    Events do."""
    lost, won = evictions.rows(
        [eviction("vision/mine", "speech/secret"), eviction("speech/secret", "vision/mine")],
        "vision",
    )
    assert (lost.victim.job, lost.evictor.job, lost.evictor.namespace) == ("mine", "", "")
    assert (won.victim.job, won.victim.namespace, won.evictor.job) == ("", "", "mine")
    assert {lost.evictor.text, won.victim.text} == {"a job in another namespace"}


def test_a_reader_of_one_namespace_sees_no_pod_of_another_one() -> None:
    (row,) = evictions.rows([eviction("speech/secret", "vision/mine")], "vision")
    assert row.pod == ""


def test_filters_are_those_of_the_url_and_a_typo_selects_all() -> None:
    eviction_filters = evictions.read_filters(
        {"node": "n1", "reason": "reclaim", "since": "2026-11-01"}
    )
    query = eviction_filters.query()
    assert (query.node, query.reason, query.since) == (
        "n1",
        "reclaim",
        datetime(2026, 11, 1, tzinfo=UTC),
    )
    assert evictions.read_filters({"reason": "mood"}).query().reason == ""


def test_jobs_that_evict_each_other_are_a_pair_with_their_losses() -> None:
    found = [
        eviction("vision/a", "vision/b", number=1),
        eviction("vision/b", "vision/a", number=2),
        eviction("vision/b", "vision/a", number=3),
        eviction("vision/c", "vision/a", number=4),
    ]
    (pair,) = evictions.mutual(found, "vision")
    losses = {pair.first.job: pair.first_lost, pair.second.job: pair.second_lost}
    assert losses == {"a": 1, "b": 2}


def test_an_eviction_that_was_not_carried_out_makes_no_pair() -> None:
    found = [
        eviction("vision/a", "vision/b"),
        eviction("vision/b", "vision/a", refused="the pod is gone"),
    ]
    assert evictions.mutual(found, "vision") == []


def test_the_page_of_a_job_divides_lost_pods_from_those_that_made_room() -> None:
    found = [
        eviction("vision/a", "vision/b", reason="reclaim"),
        eviction("vision/c", "vision/a"),
    ]
    lost, won = evictions.of_job(found, "vision/a", "")
    assert [it.evictor.job for it in lost] == ["b"]
    assert [it.victim.job for it in won] == ["c"]


@pytest.mark.parametrize(
    ("reason", "beginning"),
    [("gangreclaim", "reclaimed"), ("preempt", "preempted"), ("drained", "drained")],
)
def test_the_reason_of_an_eviction_is_a_sentence(reason: str, beginning: str) -> None:
    (row,) = evictions.rows([eviction("vision/a", "vision/b", reason=reason)], "")
    assert row.why.startswith(beginning)


def test_filters_of_the_url_become_the_query() -> None:
    query = {"namespace": "vision", "job": "train", "since": "2026-11-01", "until": "x"}
    eviction_query = evictions.read_filters(query).query()
    assert (eviction_query.namespace, eviction_query.job, eviction_query.until) == (
        "vision",
        "train",
        None,
    )
    assert eviction_query.since == datetime(2026, 11, 1, tzinfo=UTC)
