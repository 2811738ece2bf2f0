"""``strom scheduler check``: what a new configuration would decide differently, before it applies.

It reads the cluster and, if one is named, the log. It writes nothing, so read access is enough.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import typer

from stromboli.cli import options
from stromboli.cli.errors import MISUSED, CommandError, UnreachableError, UsageError
from stromboli.cli.render import output
from stromboli.embedded import log_reading, scheduler_file, state_folder
from stromboli.embedded.simulation import manifest_objects
from stromboli.scheduler import configuration_file, discovery
from stromboli.scheduler.core import policy, simulate
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.forecast import canary, expected_starts
from stromboli.scheduler.core.replay import session_replay, snapshot_history
from stromboli.shared import envelope, topics
from stromboli.shared.formats.counts import counted

DIFFERS = 1
"""The exit code if anything would be decided differently, as with ``diff``."""
NODES_SHOWN = 3


class SessionDifference(msgspec.Struct, frozen=True):
    """A recorded session that decides differently with the new configuration."""

    session: int
    now: datetime
    gangs: list[canary.Difference]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The result. ``warnings``: of the new configuration. ``gangs``: what would be decided
    differently now. ``replayed``: number of recorded sessions that were run, None if no log was
    read; ``sessions``: those that would have decided differently; ``incomplete``: number of
    replayed sessions that lacked records that the log has removed; ``not_replayed``: session -> why
    it could not be run."""

    configuration: str
    warnings: tuple[str, ...]
    at: datetime
    nodes: int
    pod_groups: int
    gangs: list[canary.Difference]
    replayed: int | None = None
    incomplete: int = 0
    not_replayed: dict[int, str] = {}
    sessions: list[SessionDifference] = []

    @property
    def differs(self) -> bool:
        """Whether anything would be decided differently."""
        return bool(self.gangs or self.sessions)


def check(
    *,
    new: Path,
    current: Path | None,
    objects: list[str] | None,
    state: Path | None,
    kafka: str,
    cluster_name: str,
    last: int,
    output_format: str,
    server: options.Server,
) -> None:
    """Compare the configurations and print the differences."""
    with _errors_as_misuse():
        wanted = scheduler_file.read(str(new))
        present = scheduler_file.read(None if current is None else str(current))
        cluster = _cluster(objects, server)
        comparison = _check(wanted, present, cluster)
        if state is None and not objects and not kafka:
            state = _default_state()
        if state is not None or kafka:
            place = log_reading.Place(state or state_folder.STATE, kafka, cluster_name)
            comparison = _with_sessions(
                comparison, _replayed(log_reading.records(place), wanted, last)
            )
    if output_format == "json":
        output.show_lines([msgspec.json.encode(comparison).decode()])
    else:
        _show(comparison)
    if comparison.differs:
        raise typer.Exit(DIFFERS)


def _default_state() -> Path | None:
    """The default folder of ``strom up``, if it has a log."""
    has_log = (state_folder.embedded(state_folder.STATE) / state_folder.LOG).is_file()
    return state_folder.STATE if has_log else None


@contextlib.contextmanager
def _errors_as_misuse() -> Iterator[None]:
    """Raise errors with exit code 2, because 1 means that something differs."""
    try:
        yield
    except UnreachableError:
        raise
    except CommandError as error:
        if error.exit_code == MISUSED:
            raise
        raise UsageError(error.what, error.why, error.next_step, error.details) from None


def _cluster(objects: list[str] | None, server: str | None) -> cluster_objects.Cluster:
    if objects:
        return manifest_objects.cluster(objects, sys.stdin, datetime.now(UTC))
    with options.client(server) as client:
        scheduling_input = client.scheduling_input()
    for unread in scheduling_input.unread:
        output.show_note(f"strom: left out, not readable: {unread}")
    items = (msgspec.json.decode(item) for item in scheduling_input.items)
    return simulate.cluster_from_manifests(items, datetime.now(UTC))


def _check(
    wanted: configuration_file.LoadedConfiguration,
    present: configuration_file.LoadedConfiguration,
    cluster: cluster_objects.Cluster,
) -> Check:
    find = discovery.discover_plugins().find

    def decided(loaded: configuration_file.LoadedConfiguration) -> dict[str, canary.GangDecision]:
        how = expected_starts.Options(configured=loaded.configuration, find=find)
        return canary.present_decisions(cluster, how)

    return Check(
        configuration=wanted.origin,
        warnings=wanted.warnings,
        at=cluster.now,
        nodes=len(cluster.nodes),
        pod_groups=len(cluster.pod_groups),
        gangs=canary.differences(
            decided(present), decided(wanted), canary.jobs_of(cluster.pod_groups)
        ),
    )


def _replayed(
    records: list[envelope.Record], wanted: configuration_file.LoadedConfiguration, last: int
) -> Iterator[session_replay.ReplayedSession]:
    past = snapshot_history.read_history(it for it in records if it.topic == topics.CHANGES)
    return session_replay.replay_sessions(
        (each for each in records if each.topic != topics.CHANGES),
        [],
        policy.Policy(),
        discovery.discover_plugins().find,
        past,
        wanted.configuration,
        last,
    )


def _with_sessions(comparison: Check, runs: Iterator[session_replay.ReplayedSession]) -> Check:
    replayed = incomplete = 0
    differing: list[SessionDifference] = []
    failed: dict[int, str] = {}
    for each in runs:
        if each.problem:
            failed[each.record.session] = each.problem
            continue
        replayed += 1
        incomplete += bool(each.missing)
        gangs = canary.differences(
            canary.of_statements(each.recorded),
            canary.of_statements(each.decided),
            canary.jobs_of_statements([*each.recorded, *each.decided]),
        )
        if gangs:
            differing.append(SessionDifference(each.record.session, each.record.now, gangs))
    return msgspec.structs.replace(
        comparison,
        replayed=replayed,
        incomplete=incomplete,
        not_replayed=failed,
        sessions=differing,
    )


def _show(comparison: Check) -> None:
    for warning in comparison.warnings:
        output.show_note(f"strom: {warning}")
    size = f"{counted(comparison.nodes, 'node')}, {counted(comparison.pod_groups, 'PodGroup')}"
    verb = "differs" if len(comparison.gangs) == 1 else "differ"
    output.show_lines([f"present state ({size}): {counted(len(comparison.gangs), 'gang')} {verb}"])
    _show_gangs(comparison.gangs)
    if comparison.replayed is None:
        output.show_note("strom: recorded sessions: not run; specify their log: --state or --kafka")
        return
    verb = "decides" if len(comparison.sessions) == 1 else "decide"
    output.show_lines(
        [
            f"recorded sessions ({comparison.replayed} run): "
            f"{len(comparison.sessions)} {verb} differently"
        ]
    )
    if comparison.incomplete:
        output.show_note(
            f"strom: {comparison.incomplete} of the sessions were run without records that the log "
            "no longer has; differences may be due to that"
        )
    for each in comparison.sessions:
        output.show_lines([f"session {each.session} of {each.now:%Y-%m-%d %H:%M:%SZ}"])
        _show_gangs(each.gangs)
    for number, problem in comparison.not_replayed.items():
        output.show_note(f"strom: session {number} could not be run: {problem}")


def _show_gangs(gangs: list[canary.Difference]) -> None:
    if gangs:
        rows = [[it.job or it.pod_group, _text(it.present), _text(it.changed)] for it in gangs]
        output.show_table(["GANG", "NOW", "WITH THE NEW CONFIGURATION"], rows)


def _text(decision: canary.GangDecision) -> str:
    parts = []
    if decision.is_admitted and not decision.binds:
        parts.append("admitted to its queue")
    if decision.binds:
        parts.append(f"{counted(sum(decision.binds.values()), 'pod')} on {_nodes(decision.binds)}")
    if decision.evictions:
        parts.append(f"{counted(len(decision.evictions), 'pod')} evicted")
    if decision.tier:
        parts.append(f"waits ({decision.tier}): {decision.reason}".removesuffix(": "))
    return "; ".join(parts) or "unchanged"


def _nodes(binds: Mapping[str, int]) -> str:
    named = [f"{node} ({count})" for node, count in list(binds.items())[:NODES_SHOWN]]
    more = len(binds) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
