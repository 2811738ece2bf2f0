"""``strom node cordon``, ``uncordon`` and ``drain``.

``drain`` does what ``kubectl drain`` does, with the eviction API: it cordons nodes, evicts their
pods as PodDisruptionBudgets allow, and waits until they are gone. It leaves pods of DaemonSets,
which ignore the cordon, and mirror pods, which the API server cannot delete. The controller sees
each eviction as the event PodEvicted, so policies of jobs apply.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.errors import (
    CommandError,
    ConflictedError,
    NotFoundError,
    TimedOutError,
    UnavailableError,
)
from stromboli.cli.render import output
from stromboli.client.operations import calls, node_calls
from stromboli.shared.api import core, kinds
from stromboli.shared.formats import counts

if TYPE_CHECKING:
    from stromboli.cli.client import Client

POLL_EVERY_S = 1.0
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod: its kubelet runs it from a file."""
SHOWN = 5
"""Maximum pods that are named in an error."""


def _names(ctx: typer.Context, incomplete: str) -> list[str]:
    return options.complete_names(ctx, incomplete, lambda client: client.nodes())


NodeName = Annotated[
    str, typer.Argument(metavar="NODE", help="Name of the node.", autocompletion=_names)
]
NodeNames = Annotated[
    list[str], typer.Argument(metavar="NODE...", help="Names of nodes.", autocompletion=_names)
]


def cordon(nodes: NodeNames, server: options.Server = None) -> None:
    """Mark nodes as unschedulable; their pods continue."""
    _set_schedulable(nodes, server, is_schedulable=False)


def uncordon(nodes: NodeNames, server: options.Server = None) -> None:
    """Mark nodes as schedulable."""
    _set_schedulable(nodes, server, is_schedulable=True)


def _set_schedulable(nodes: list[str], server: str | None, *, is_schedulable: bool) -> None:
    with options.client(server) as client:

        def change(name: str) -> str:
            client.send(node_calls.cordon(name, is_schedulable=is_schedulable))
            return f"node/{name} {'uncordoned' if is_schedulable else 'cordoned'}"

        options.for_each(nodes, change)


def drain(
    nodes: NodeNames,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout", help="Time limit for all nodes together: 90s, 5m, 1h. [default: none]"
        ),
    ] = None,
    grace_period_s: Annotated[
        int | None,
        typer.Option(
            "--grace-period",
            min=0,
            metavar="SECONDS",
            help="Termination grace period in seconds. [default: the pod's]",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also evict pods without an owner, which are not created again."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what would be done, and change nothing."),
    ] = False,
    server: options.Server = None,
) -> None:
    """Cordon nodes and evict their pods.

    Evictions respect PodDisruptionBudgets: while a budget does not allow the eviction of a pod, it
    is retried until --timeout. Pods of DaemonSets and mirror pods are not evicted. Policies of jobs
    for PodEvicted apply. Exit code 124: timeout; the nodes stay cordoned, and the command can be
    repeated.
    """
    timeout_s = options.duration_s(timeout, "--timeout")
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with options.client(server) as client:
        if dry_run:
            options.for_each(nodes, lambda name: _would_drain(client, name, is_forced=force))
            return

        def cordoned(name: str) -> str:
            client.send(node_calls.cordon(name))
            return f"node/{name} cordoned"

        def drained(name: str) -> str:
            _Drain(client, name, grace_period_s, deadline, is_forced=force).run()
            return f"node/{name} drained"

        # Cordon all first, so that no pod is rescheduled to a node that is drained next.
        options.for_each(nodes, cordoned)
        options.for_each(nodes, drained)


def _would_drain(client: "Client", name: str, *, is_forced: bool) -> str:
    """Print what a drain of the node would do. Raises CommandError where the drain would."""
    client.send(calls.node(name))
    pods = _pods(client, name)
    planned = plan(pods, is_forced=is_forced)
    if planned.unowned:
        raise _unowned(name, planned.unowned)
    left = [pod for pod in pods if pod not in planned.evicted]
    output.show_lines(
        [
            f"node/{name} cordoned (dry run)",
            *(f"pod/{pod.metadata.key} evicted (dry run)" for pod in planned.evicted),
            *(f"pod/{pod.metadata.key} stays: {_why_left(pod)}" for pod in left),
        ]
    )
    return f"node/{name} drained (dry run)"


def _why_left(pod: core.Pod) -> str:
    is_mirror = pod.metadata.annotation(MIRROR) is not None
    return "it is a mirror pod" if is_mirror else "it belongs to a DaemonSet"


def _pods(client: "Client", node: str) -> list[core.Pod]:
    items = client.send(node_calls.pods(node)).items
    return [client.decode(kinds.PODS, raw) for raw in items]


class Plan(msgspec.Struct, frozen=True):
    """The pods of a node: those to evict, and those without an owner, which no controller would
    create again."""

    evicted: tuple[core.Pod, ...]
    unowned: tuple[core.Pod, ...]


def plan(pods: Sequence[core.Pod], *, is_forced: bool) -> Plan:
    """Select the pods of a node that a drain evicts. Pure."""
    evicted: list[core.Pod] = []
    unowned: list[core.Pod] = []
    for pod in pods:
        owner = pod.metadata.controller
        if pod.metadata.annotation(MIRROR) is not None:
            continue
        if owner is not None and owner.kind == kinds.DAEMON_SETS.kind:
            continue
        has_ended = pod.status.phase in ("Succeeded", "Failed")
        is_replaced = owner is not None or has_ended or is_forced
        (evicted if is_replaced else unowned).append(pod)
    return Plan(tuple(evicted), tuple(unowned))


class _Drain:
    """The drain of one node, in rounds until no pod is left."""

    def __init__(
        self,
        client: "Client",
        node: str,
        grace_period_s: int | None,
        deadline: float | None,
        *,
        is_forced: bool,
    ) -> None:
        self._client = client
        self._node = node
        self._grace_period_s = grace_period_s
        self._deadline = deadline
        self._is_forced = is_forced
        self._refused: dict[str, str] = {}
        """uid of a pod -> why it was not evicted in the last round."""

    def run(self) -> None:
        """Evict all pods. Raises CommandError for pods without an owner, TimedOutError."""
        evicting: dict[str, core.Pod] = {}
        while True:
            # List again: binding decisions in flight during the cordon add pods.
            planned = plan(_pods(self._client, self._node), is_forced=self._is_forced)
            if planned.unowned:
                raise _unowned(self._node, planned.unowned)
            left = {pod.metadata.uid: pod for pod in planned.evicted}
            for uid in evicting.keys() - left.keys():
                output.show_lines([f"pod/{evicting.pop(uid).metadata.key} is gone"])
            if not left:
                return
            for uid, pod in left.items():
                if uid not in evicting and self._evict(pod):
                    evicting[uid] = pod
            if self._deadline is not None and time.monotonic() >= self._deadline:
                raise self._timed_out(left)
            time.sleep(POLL_EVERY_S)

    def _evict(self, pod: core.Pod) -> bool:
        """Request the eviction; returns whether it was accepted, and prints once why not."""
        metadata = pod.metadata
        call = node_calls.evict(
            metadata.namespace, metadata.name, metadata.uid, self._grace_period_s
        )
        try:
            self._client.send(call)
        except (NotFoundError, ConflictedError):
            return True  # it ended meanwhile, and the next list no longer has it
        except UnavailableError as error:
            if self._refused.get(metadata.uid) != error.why:
                output.show_note(f"pod/{metadata.key} waits: {error.why}")
                self._refused[metadata.uid] = error.why
            return False
        self._refused.pop(metadata.uid, None)
        output.show_lines([f"pod/{metadata.key} evicted"])
        return True

    def _timed_out(self, left: dict[str, core.Pod]) -> TimedOutError:
        reasons = [
            f"pod/{pod.metadata.key}: {self._refused.get(uid, 'terminating')}"
            for uid, pod in left.items()
        ]
        why = f"{counts.counted(len(left), 'pod')} left at the end of --timeout"
        step = f"drain again, or undo the cordon: strom node uncordon {self._node}"
        return TimedOutError(f"node {self._node}", why, step, tuple(reasons[:SHOWN]))


def _unowned(node: str, pods: Sequence[core.Pod]) -> CommandError:
    named = tuple(f"pod/{pod.metadata.key}" for pod in pods[:SHOWN])
    why = f"{counts.counted(len(pods), 'pod')} without an owner would not be created again"
    return CommandError(f"node {node}", why, "evict them too: --force", named)
