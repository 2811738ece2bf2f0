"""Questions about a pending job, and the scheduler's answers: when would it start if ...?"""

import msgspec

from stromboli.shared.api import core
from stromboli.shared.decoding import Instant
from stromboli.shared.messages.base import Message, register
from stromboli.shared.messages.scheduling import ExpectedStart


class GangTask(Message, frozen=True, kw_only=True):
    """A task of a job, with the parts of its pod template that the scheduler reads.
    ``partition_size``: pods per partition; 0: the task is not divided."""

    name: str
    replicas: int
    spec: core.PodSpec = core.PodSpec()
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    partition_size: int = 0


class Gang(Message, frozen=True, kw_only=True):
    """The gang of a job as its PodGroup and its pods would be. ``tasks``: empty if they are not
    known, because the tasks of the job depend on each other or form an array."""

    queue: str
    priority_class_name: str = ""
    min_member: int
    min_task_member: dict[str, int] = msgspec.field(default_factory=dict)
    min_resources: dict[str, str] = msgspec.field(default_factory=dict)
    tasks: tuple[GangTask, ...] = ()


@register("stromboli.scheduling.what_if_asked.v1")
class WhatIfAsked(Message, frozen=True, kw_only=True):
    """A question: when would a pending PodGroup start (key: the question's id)?

    ``present``: the gang as it is. ``changed``: the gang as it would be; None if only nodes are
    added. ``is_new``: the changed job is submitted again, because a queue or a request cannot
    change. ``sizes_change``: the changed gang has other pods than the present one. ``nodes``: the
    number of added nodes. ``until``: no answer is needed after this time.
    """

    pod_group: str
    present: Gang
    changed: Gang | None = None
    is_new: bool = False
    sizes_change: bool = False
    nodes: int = 0
    until: Instant


@register("stromboli.scheduling.what_if_answered.v1")
class WhatIfAnswered(Message, frozen=True, kw_only=True):
    """The answer to a question (key: the question's id).

    ``cannot_tell``: why there is no answer; empty if there is one. ``present`` and ``changed``: the
    expected starts without and with the change, both simulated with the same run times. ``at``: the
    time of the cluster state. ``draws``: the number of simulations of each. ``reason``: why the
    changed job would not start at ``at``. ``notes``: the assumptions of the simulation.
    """

    pod_group: str
    at: Instant
    draws: int = 0
    present: ExpectedStart | None = None
    changed: ExpectedStart | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    cannot_tell: str = ""
