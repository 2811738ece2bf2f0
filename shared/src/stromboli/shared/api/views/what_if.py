"""The expected start of a pending job if the job or the cluster were different, as the REST API
returns it."""

from typing import Annotated

import msgspec

from stromboli.shared.api.views.expected_start import ExpectedStart
from stromboli.shared.decoding import Instant

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
MOST_NODES = 1000
"""Maximum number of nodes that one request may add."""


class JobIf(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """Changes to the job and the cluster; an omitted field changes nothing. ``gpus`` and
    ``replicas``: task -> GPUs of each of its pods, and its number of pods; an empty task name means
    the only task or, for ``gpus``, each task that requests GPUs. ``nodes``: the number of nodes
    that are added to the cluster, copies of the nodes that are feasible for the job's pods.
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
        """Whether the minimum or the number of the gang's pods changes."""
        return self.min_available is not None or bool(self.replicas)

    @property
    def changes_job(self) -> bool:
        """Whether the job changes, and not only the cluster."""
        return self.is_new or self.sizes_change or self.priority_class_name is not None


class WhatIf(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``present``: when the job is expected to start as it is; ``changed``: with the change. Both
    are simulated from the cluster at ``at`` with the same run times, so they can be compared.

    ``cannot_tell``: why there is no answer; empty if there is one. ``reason``: why the changed job
    would not start immediately. ``notes``: the assumptions of the simulation. ``job``: namespace
    and name.
    """

    job: str
    at: Instant
    present: ExpectedStart | None = None
    changed: ExpectedStart | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    cannot_tell: str = ""
