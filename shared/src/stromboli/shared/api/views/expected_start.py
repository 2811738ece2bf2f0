"""When a pending job is expected to start, as the REST API returns it."""

from typing import Literal

import msgspec

from stromboli.shared.decoding import Instant

StartAnswer = Literal["starts", "not-within-7-days", "blocked-by-quota", "can-never-fit"]
"""``starts``: the PodGroup starts within 7 days in at least half of the simulations.
``blocked-by-quota``: it never starts in the simulations, because its queue is closed or the quota
of its queue does not admit it."""


class ExpectedStart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """When a pending PodGroup is expected to start: 80 % of the simulations are between ``p10`` and
    ``p90``, and half of them before ``p50``. A time is null if it is more than 7 days away or the
    PodGroup never starts.

    ``answer``: ``starts``, ``not-within-7-days``, ``blocked-by-quota`` or ``can-never-fit``.
    ``at``: the time of the cluster state that was simulated. ``pod_group``: namespace and name; the
    PodGroup of a job is named ``<job>-<uid>``. ``draws``: the number of simulations.
    """

    pod_group: str
    answer: StartAnswer
    at: Instant
    draws: int
    p10: Instant | None = None
    p50: Instant | None = None
    p90: Instant | None = None


class ExpectedStarts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The expected starts of pending PodGroups, by key."""

    items: tuple[ExpectedStart, ...]
