"""``strom simulate replay``: repeats past sessions from the log."""

from collections import Counter
from pathlib import Path

import msgspec
import typer

from stromboli.embedded import log_reading, scheduler_file
from stromboli.scheduler import configuration_file, discovery
from stromboli.scheduler.core import policy
from stromboli.scheduler.core.replay import session_replay, snapshot_history
from stromboli.shared import topics
from stromboli.shared.formats.counts import counted
from stromboli.shared.messages import scheduling as messages


class ReplayResult(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The printed result of a session."""

    session: int
    now: str
    same: bool
    binds: dict[str, str]
    evictions: tuple[str, ...]
    recorded_binds: dict[str, str] | None = None
    recorded_evictions: tuple[str, ...] | None = None
    problem: str = ""
    missing: dict[str, int] = {}


def replay(
    *, state: Path, kafka: str, cluster_name: str, config: list[Path] | None, instead: Path | None
) -> None:
    """Run the recorded sessions and print a line for each."""
    records = log_reading.records(log_reading.Place(state, kafka, cluster_name))
    registry = discovery.discover_plugins()
    configurations = {path: scheduler_file.read(str(path)).configuration for path in config or []}
    other = None if instead is None else scheduler_file.read(str(instead)).configuration
    past = snapshot_history.read_history(each for each in records if each.topic == topics.CHANGES)
    runs = session_replay.replay_sessions(
        (each for each in records if each.topic != topics.CHANGES),
        [*configurations.values(), configuration_file.load_default(registry).configuration],
        policy.Policy(),
        registry.find,
        past,
        other,
    )
    counts: Counter[str] = Counter()
    in_force: set[str] = set()
    for each in runs:
        counts[_outcome(each)] += 1
        in_force.add(each.record.configuration)
        typer.echo(msgspec.json.encode(_line(each)).decode())
    typer.echo(_summary(counts), err=True)
    for path, configuration in configurations.items():
        if instead is None and configuration.digest not in in_force:
            next_step = f"to decide with it, use --instead {path}"
            typer.echo(f"{path}: no session was decided with it; {next_step}", err=True)
    if counts["failed"] or (instead is None and counts["differs"]):
        raise typer.Exit(1)


def _outcome(replayed: session_replay.ReplayedSession) -> str:
    if replayed.problem:
        return "failed"
    return "same" if replayed.is_same else "differs"


def _summary(counts: Counter[str]) -> str:
    if not counts:
        return "the log has no sessions"
    line = (
        f"{counted(counts.total(), 'session')}: {counts['same']} decided the same, "
        f"{counts['differs']} differently"
    )
    return f"{line}, {counts['failed']} could not be run" if counts["failed"] else line


def _line(replayed: session_replay.ReplayedSession) -> ReplayResult:
    binds, evictions = _of(replayed.decided)
    line = ReplayResult(
        session=replayed.record.session,
        now=replayed.record.now.isoformat(),
        same=replayed.is_same,
        binds=binds,
        evictions=evictions,
        problem=replayed.problem,
        missing=dict(replayed.missing),
    )
    if replayed.is_same:
        return line
    recorded = _of(replayed.recorded)
    return msgspec.structs.replace(line, recorded_binds=recorded[0], recorded_evictions=recorded[1])


def _of(
    statements: tuple[messages.StatementDecided, ...],
) -> tuple[dict[str, str], tuple[str, ...]]:
    binds = {
        f"{bind.namespace}/{bind.pod}": bind.node for each in statements for bind in each.binds
    }
    evictions = (f"{it.namespace}/{it.pod}" for each in statements for it in each.evictions)
    return binds, tuple(sorted(evictions))
