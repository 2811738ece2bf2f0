"""When a pending job would start if it, or the cluster, were different: as REST returns it."""

from typing import Annotated

import msgspec

from stromboli.shared.api.views.expected_start import ExpectedStart
from stromboli.shared.decoding import Instant

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
MOST_NODES = 1000
"""Nodes that one question may add."""


class JobIf(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """What would be different; omitted fields remain. ``gpus`` and ``replicas``: task -> GPUs of
    each of its pods, and its number of pods; an empty name is the only task, or for ``gpus`` each
    that requests some. ``nodes``: nodes that are added to the cluster, copies of those that take
    the job's pods.
    """

    priority_class_name: str | None = None
    queue: str | None = None
    gpus: dict[str, Count] = {}
    min_available: Count | None = None
    replicas: dict[str, Count] = {}
    nodes: Annotated[int, msgspec.Meta(ge=0, le=MOST_NODES)] = 0

    @property
    def is_new(self) -> bool:
        """Whether the job would have to be submitted again."""
        return self.queue is not None or bool(self.gpus)

    @property
    def sizes_change(self) -> bool:
        """Whether other pods would be in the gang."""
        return self.min_available is not None or bool(self.replicas)

    @property
    def changes_job(self) -> bool:
        """Whether more than the cluster changes."""
        return self.is_new or self.sizes_change or self.priority_class_name is not None


class WhatIf(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``present``: when the job is expected to start as it is; ``changed``: with the change. Both
    are simulated from the cluster at ``at`` with the same run times, so they can be compared.

    ``cannot_tell``: why there is no answer; empty if there is one. ``reason``: why the changed job
    would not start at once. ``notes``: what was assumed. ``job``: namespace and name.
    """

    job: str
    at: Instant
    present: ExpectedStart | None = None
    changed: ExpectedStart | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    cannot_tell: str = ""
