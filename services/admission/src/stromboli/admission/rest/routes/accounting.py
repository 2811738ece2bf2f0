"""REST routes of the history: jobs, attempts, evictions, explanations, usage, cluster changes.

The rights are the rights on the objects: a client that may list a kind in a namespace (or in all
namespaces) may also read its history there. The objects of cluster changes have no namespace.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import msgspec
from litestar import get
from litestar.params import FromQuery, QueryParameter
from litestar.types import ControllerRouterHandler

from stromboli.admission import problems
from stromboli.admission.rest.authorization import many, many_by_query, needs
from stromboli.shared import decoding, errors
from stromboli.shared.api import kinds
from stromboli.shared.api.views import accounting

RIGHTS = needs(many_by_query("list", kinds.JOBS), many_by_query("list", kinds.PODS))
CLUSTER_RIGHTS = needs(
    many("list", kinds.NODES), many("list", kinds.QUEUES), many("list", kinds.PRIORITY_CLASSES)
)
Since = Annotated[
    str, QueryParameter(name="since", description="Start of the interval, an RFC 3339 time.")
]
Until = Annotated[
    str, QueryParameter(name="until", description="End of the interval, an RFC 3339 time.")
]
At = Annotated[
    str,
    QueryParameter(
        name="at", description="Attempts that had their node and devices at this RFC 3339 time."
    ),
]
Labels = Annotated[
    str, QueryParameter(name="labels", description="Only jobs with these labels: KEY=VALUE,...")
]
States = Annotated[
    str, QueryParameter(name="state", description="Only attempts in these states: Failed,Gone")
]
Limit = Annotated[
    int,
    QueryParameter(
        name="limit", ge=1, le=accounting.MOST_ATTEMPTS, description="Maximum attempts per page."
    ),
]
JobLimit = Annotated[
    int,
    QueryParameter(name="limit", ge=1, le=accounting.MOST_JOBS, description="Maximum per page."),
]
EvictionLimit = Annotated[
    int,
    QueryParameter(
        name="limit", ge=1, le=accounting.MOST_EVICTIONS, description="Maximum per page."
    ),
]
ChangeLimit = Annotated[
    int,
    QueryParameter(name="limit", ge=1, le=accounting.MOST_CHANGES, description="Maximum per page."),
]
ExplanationLimit = Annotated[
    int,
    QueryParameter(
        name="limit", ge=1, le=accounting.MOST_EXPLANATIONS, description="Maximum per page."
    ),
]
ChangedKind = Annotated[
    str, QueryParameter(name="kind", description=f"One of {', '.join(accounting.CHANGED_KINDS)}.")
]
After = Annotated[
    str,
    QueryParameter(
        name="continue", max_length=512, description="The `continue` of the previous page."
    ),
]
By = Annotated[
    str,
    QueryParameter(
        name="by", description=f"Groups: {', '.join(accounting.GROUPS)}, {accounting.LABEL}KEY"
    ),
]


def routes(history: Callable[[], accounting.History | None]) -> list[ControllerRouterHandler]:
    """The REST routes of the history. ``history`` returns the history's client; None if no history
    service runs."""

    def opened() -> accounting.History:
        history_service = history()
        if history_service is None:
            raise errors.UnavailableError("history", "this server runs without a history service")
        return history_service

    @get(
        "/v1/history/attempts",
        opt=RIGHTS,
        summary="Attempts of all jobs that ran, also of deleted ones, the last created pod first",
    )
    async def attempts(
        namespace: FromQuery[str] = "",
        job: FromQuery[str] = "",
        uid: FromQuery[str] = "",
        user: FromQuery[str] = "",
        queue: FromQuery[str] = "",
        node: FromQuery[str] = "",
        device: FromQuery[str] = "",
        states: States = "",
        since: Since = "",
        until: Until = "",
        at: At = "",
        labels: Labels = "",
        limit: Limit = accounting.ATTEMPTS_PER_PAGE,
        after: After = "",
    ) -> accounting.AttemptPage:
        return await opened().attempts(
            accounting.AttemptQuery(
                namespace=namespace,
                job=job,
                uid=uid,
                user=user,
                queue=queue,
                node=node,
                device=device,
                states=_words(states),
                since=_time("since", since) if since else None,
                until=_time("until", until) if until else None,
                at=_time("at", at) if at else None,
                labels=_labels(labels),
                limit=limit,
                after=after,
            )
        )

    @get(
        "/v1/history/jobs",
        opt=RIGHTS,
        summary="Jobs that ran, also deleted ones, with their phases, the latest submission first",
    )
    async def jobs(
        namespace: FromQuery[str] = "",
        name: FromQuery[str] = "",
        uid: FromQuery[str] = "",
        limit: JobLimit = accounting.MOST_JOBS,
        after: After = "",
    ) -> accounting.JobPage:
        return await opened().jobs(
            accounting.JobQuery(namespace=namespace, name=name, uid=uid, limit=limit, after=after)
        )

    @get(
        "/v1/history/evictions",
        opt=RIGHTS,
        summary="Evictions of a job's or namespace's pods, and evictions that made room for them",
    )
    async def evictions(
        namespace: FromQuery[str] = "",
        job: FromQuery[str] = "",
        uid: FromQuery[str] = "",
        node: FromQuery[str] = "",
        reason: FromQuery[str] = "",
        since: Since = "",
        until: Until = "",
        limit: EvictionLimit = accounting.ATTEMPTS_PER_PAGE,
        after: After = "",
    ) -> accounting.EvictionPage:
        return await opened().evictions(
            accounting.EvictionQuery(
                namespace=namespace,
                job=job,
                uid=uid,
                node=node,
                reason=reason,
                since=_time("since", since) if since else None,
                until=_time("until", until) if until else None,
                limit=limit,
                after=after,
            )
        )

    @get(
        "/v1/history/changes",
        opt=CLUSTER_RIGHTS,
        summary="Changes of nodes, queues, priority classes and configuration, the newest first",
    )
    async def changes(
        kind: ChangedKind = "",
        name: FromQuery[str] = "",
        since: Since = "",
        until: Until = "",
        limit: ChangeLimit = accounting.ATTEMPTS_PER_PAGE,
        after: After = "",
    ) -> accounting.ChangePage:
        return await opened().changes(
            accounting.ChangeQuery(
                kind=kind,
                name=name,
                since=_time("since", since) if since else None,
                until=_time("until", until) if until else None,
                limit=limit,
                after=after,
            )
        )

    @get(
        "/v1/history/explanations",
        opt=RIGHTS,
        summary="Why PodGroups were pending and their positions, over time, the newest first",
    )
    async def explanations(
        namespace: FromQuery[str] = "",
        job: FromQuery[str] = "",
        uid: FromQuery[str] = "",
        since: Since = "",
        until: Until = "",
        limit: ExplanationLimit = accounting.MOST_EXPLANATIONS,
        after: After = "",
    ) -> accounting.ExplanationPage:
        return await opened().explanations(
            accounting.ExplanationQuery(
                namespace=namespace,
                job=job,
                uid=uid,
                since=_time("since", since) if since else None,
                until=_time("until", until) if until else None,
                limit=limit,
                after=after,
            )
        )

    @get(
        "/v1/history/usage",
        opt=RIGHTS,
        summary="CPU, memory and GPU time used within an interval, by group",
    )
    async def usage(
        since: Since,
        until: Until,
        by: By = "queue",
        namespace: FromQuery[str] = "",
        user: FromQuery[str] = "",
        queue: FromQuery[str] = "",
        labels: Labels = "",
    ) -> accounting.UsageReport:
        return await opened().usage(
            accounting.UsageQuery(
                since=_time("since", since),
                until=_time("until", until),
                by=_words(by),
                namespace=namespace,
                user=user,
                queue=queue,
                labels=_labels(labels),
            )
        )

    return [attempts, jobs, evictions, changes, explanations, usage]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _time(name: str, text: str) -> datetime:
    try:
        return decoding.instant(text)
    except msgspec.DecodeError:
        expected = "an RFC 3339 time with its zone: 2026-01-31T12:00:00Z"
        raise problems.invalid(name, f"{text[:40]!r} is not a time", expected) from None


def _labels(text: str) -> dict[str, str]:
    parsed_labels = {}
    for word in _words(text):
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise problems.invalid("labels", f"{word[:80]!r} is not KEY=VALUE", "KEY=VALUE,...")
        parsed_labels[key] = value
    return parsed_labels
