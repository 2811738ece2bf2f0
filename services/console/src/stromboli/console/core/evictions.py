"""Evictions, from the history: which jobs were preempted, for which jobs and why, and jobs that
evict each other. Pure.

Names of other namespaces are left out for a viewer of one namespace, as in Events and conditions.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import ClassVar

import msgspec

from stromboli.console.core import url_filters
from stromboli.console.core.past_attempts import MOST_TOKEN_CHARACTERS
from stromboli.console.core.url_filters import UrlFilters, word
from stromboli.shared.api.views import accounting

PAGE_ROWS = 100
MOST_OF_JOB = 200
"""Evictions that the page of a job shows."""
HIDDEN = "a job in another namespace"
PREEMPT, RECLAIM = "preempt", "reclaim"
"""Substrings of the name of a scheduler action."""
REASONS = {PREEMPT: "preempted", RECLAIM: "reclaimed"}
"""Filter of the reason -> its text."""


class EvictionFilters(UrlFilters, frozen=True, kw_only=True):
    """The filters of the list. ``since`` and ``until`` are days (UTC), both included. ``job``: a
    job that lost pods, or that pods were evicted for. ``node``: the node of the pods. ``reason``: a
    key of ``REASONS``. ``after``: the token of the page."""

    place: ClassVar[str] = "after"
    job: str = ""
    uid: str = ""
    node: str = ""
    reason: str = ""
    since: str = ""
    until: str = ""
    after: str = ""

    def query(self) -> accounting.EvictionQuery:
        """These filters as a query to REST."""
        return accounting.EvictionQuery(
            namespace=self.scope,
            job=self.job,
            uid=self.uid,
            node=self.node,
            reason=self.reason,
            since=url_filters.begin(self.since) if self.since else None,
            until=url_filters.end(self.until) if self.until else None,
            limit=PAGE_ROWS,
            after=self.after,
        )


class Party(msgspec.Struct, frozen=True, kw_only=True):
    """A job that lost a pod, or that a pod was evicted for. ``job`` is empty if it is unknown or
    hidden from the viewer: then ``text`` describes it."""

    namespace: str = ""
    job: str = ""
    text: str = ""


class EvictionRow(msgspec.Struct, frozen=True, kw_only=True):
    """An eviction of a pod. ``why`` is a sentence; ``refused``: the reason why the eviction was not
    carried out, empty if it was."""

    at: datetime | None
    pod: str
    node: str
    victim: Party
    evictor: Party
    why: str
    refused: str


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two jobs that evict each other: how many pods each of them lost to the other."""

    first: Party
    first_lost: int
    second: Party
    second_lost: int


def read_filters(query: Mapping[str, str]) -> EvictionFilters:
    """The filters of a URL's query. Invalid values, as from a typo in the URL, are ignored."""
    return EvictionFilters(
        namespace=word(query, "namespace"),
        job=word(query, "job"),
        uid=word(query, "uid"),
        node=word(query, "node"),
        reason=reason if (reason := word(query, "reason")) in REASONS else "",
        since=url_filters.day(query, "since"),
        until=url_filters.day(query, "until"),
        after=query.get("after", "")[:MOST_TOKEN_CHARACTERS],
    )


def rows(evictions: Iterable[accounting.Eviction], reader: str) -> list[EvictionRow]:
    """The evictions as rows. ``reader``: the namespace that the viewer reads; empty for all."""
    return [
        EvictionRow(
            at=it.at,
            pod=it.pod if reader in ("", it.namespace) else "",
            node=it.node if reader in ("", it.namespace) else "",
            victim=_victim(it, reader),
            evictor=_evictor(it, reader),
            why=_why(it.reason),
            refused=it.refused,
        )
        for it in evictions
    ]


def mutual(evictions: Sequence[accounting.Eviction], reader: str) -> list[Pair]:
    """The pairs of jobs that evicted pods of each other, pairs with most evictions first."""
    carried_out = [it for it in evictions if not it.refused and it.uid and it.by_uid != it.uid]
    lost = Counter((it.uid, it.by_uid) for it in carried_out if it.by_uid)
    parties = {it.uid: _victim(it, reader) for it in carried_out}
    pairs = [
        Pair(
            first=parties[first],
            first_lost=count,
            second=parties[second],
            second_lost=lost[second, first],
        )
        for (first, second), count in lost.items()
        if first < second and (second, first) in lost
    ]
    return sorted(pairs, key=lambda it: -(it.first_lost + it.second_lost))


def of_job(
    evictions: Sequence[accounting.Eviction], uid: str, reader: str
) -> tuple[list[EvictionRow], list[EvictionRow]]:
    """The evictions of a job's pods, and the evictions of other jobs' pods for the job."""
    return (
        rows([it for it in evictions if it.uid == uid], reader),
        rows([it for it in evictions if it.by_uid == uid and it.uid != uid], reader),
    )


def _victim(it: accounting.Eviction, reader: str) -> Party:
    if reader not in ("", it.namespace):
        return Party(text=HIDDEN)
    return Party(namespace=it.namespace, job=it.job, text="" if it.job else "a pod without a job")


def _evictor(it: accounting.Eviction, reader: str) -> Party:
    if reader not in ("", it.by_namespace):
        return Party(text=HIDDEN)
    text = "" if it.by_job else it.by_pod_group
    return Party(namespace=it.by_namespace, job=it.by_job, text=text)


def _why(reason: str) -> str:
    """The name of the scheduler's action as a sentence; any other reason as it is."""
    if RECLAIM in reason:
        return "reclaimed: its queue held more than its share"
    if PREEMPT in reason:
        return "preempted: the other job comes before it in their queue"
    return reason
