"""Reads the files of a simulation: nodes, jobs, failures of nodes, queues and reservations.

Columns and defaults are in docs/simulation.md. Two published formats are read as they are: the job
list of Microsoft's Philly trace with virtual clusters (``timestamp,duration,num_gpus,cluster``) and
its list of nodes (``vc,node num``).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

import msgspec

from stromboli.cli.errors import CommandError
from stromboli.embedded.simulation import csv_rows, object_files
from stromboli.embedded.simulation.core import objects, workload
from stromboli.shared.api import batch, meta, reservation, scheduling
from stromboli.shared.formats.counts import counted
from stromboli.shared.jobspec import data_sets

NODE_COLUMNS = (
    "name",
    "count",
    "cpu",
    "memory_gib",
    "gpu",
    "labels",
    "pods",
    "cache_gib",
    "read_mb_per_s",
)
JOB_COLUMNS = (
    "job",
    "submit_s",
    "duration_s",
    "tasks",
    "min_available",
    "cpu",
    "memory_gib",
    "gpu",
    "queue",
    "priority",
    "preemptable",
    "node_selector",
    "synchronous",
    "estimate_s",
    "data_sets",
    "data_locality",
    "data_sharing",
    "reservation",
)
FAILURE_COLUMNS = ("node", "down_s", "up_s")
PHILLY_JOBS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
PHILLY_NODES = ("vc", "node num")
PHILLY_GPUS = 8
"""GPUs of a node of the Philly trace, and therefore the maximum of one task."""
_GIB = 2**30
_NAMES = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class Inputs(msgspec.Struct, frozen=True):
    """The content of the input files. ``jobs``: in the order of their submission."""

    nodes: tuple[workload.NodeGroup, ...]
    jobs: tuple[workload.Job, ...]
    queues: tuple[scheduling.Queue, ...] = ()
    failures: tuple[workload.NodeFailure, ...] = ()
    reservations: tuple[reservation.AdvanceReservation, ...] = ()


def read(
    nodes: Path,
    jobs: Path,
    queues: Path | None = None,
    failures: Path | None = None,
    reservations: Path | None = None,
) -> Inputs:
    """Read and check all files. Raises CommandError with every problem of every CSV file."""
    problems = csv_rows.Problems()
    found_queues = () if queues is None else object_files.queues(queues)
    weights: dict[str, int] = {}
    with _opened(nodes) as lines:
        groups = tuple(_nodes(lines, str(nodes), problems, weights))
    if not found_queues:
        found_queues = tuple(_weighted(name, weight) for name, weight in weights.items())
    reserved = () if reservations is None else object_files.reservations(reservations, groups)
    known = None
    if queues is not None:
        known = {"default", *(queue.metadata.name for queue in found_queues)}
    with _opened(jobs) as lines:
        found_jobs = sorted(
            _jobs(lines, str(jobs), problems, known, {each.metadata.name for each in reserved}),
            key=_by_submission,
        )
    found_failures: tuple[workload.NodeFailure, ...] = ()
    if failures is not None:
        names = {name for group in groups for name in group.names()}
        with _opened(failures) as lines:
            found_failures = tuple(_failures(lines, str(failures), problems, names))
    if not problems.count and not groups:
        problems.add(str(nodes), "the file has no node; write at least one line below the header")
    if problems.count:
        raise CommandError(
            "the simulation's files",
            f"{problems.count} problems",
            "correct these lines; docs/simulation.md lists all columns",
            details=problems.shown(),
        )
    return Inputs(groups, tuple(found_jobs), found_queues, found_failures, reserved)


def _by_submission(job: workload.Job) -> int:
    return job.submit_us


def _opened(path: Path) -> TextIO:
    try:
        text = path.open(encoding="utf-8-sig", newline="")
        text.read(1)
        text.seek(0)
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandError(str(path), why, "specify a readable file") from None
    except UnicodeDecodeError as error:
        raise CommandError(
            str(path), f"not text: byte {error.start} is not UTF-8", "specify a CSV file"
        ) from None
    return text


# Nodes


def _nodes(
    lines: Iterable[str], path: str, problems: csv_rows.Problems, weights: dict[str, int]
) -> Iterator[workload.NodeGroup]:
    lines = iter(lines)
    header = next(lines, "")
    if "vc" in [name.strip() for name in header.split(",")]:
        yield from _philly_nodes([header, *lines], path, problems, weights)
        return
    node_names: set[str] = set()
    for row in csv_rows.rows([header, *lines], path, NODE_COLUMNS, ("name",), problems):
        group = workload.NodeGroup(
            _name(row, "name"),
            row.integer("count", 1, least=1),
            _resources(row, default_cpu=0.0),
            _labels(row, "labels"),
            row.integer("pods", 110, least=1),
            round(row.number("cache_gib", 0.0) * _GIB),
            max(round(row.number("read_mb_per_s", 100.0, least=0.001) * 10**6), 1),
        )
        for name in group.names() if group.count <= 10**6 else ():
            if name in node_names:
                row.fail("name", f"node {name} exists already; write another name")
                break
            node_names.add(name)
        yield group


def _philly_nodes(
    lines: Iterable[str], path: str, problems: csv_rows.Problems, weights: dict[str, int]
) -> Iterator[workload.NodeGroup]:
    for row in csv_rows.rows(lines, path, PHILLY_NODES, PHILLY_NODES, problems):
        name, count = _name(row, "vc"), row.integer("node num", 1, least=1)
        weights[name] = count
        yield workload.NodeGroup(
            f"node-{name}", count, workload.Resources(gpus=PHILLY_GPUS), {"vc": name}
        )


def _weighted(name: str, weight: int) -> scheduling.Queue:
    return scheduling.Queue(
        metadata=meta.ObjectMeta(name=name),
        spec=scheduling.QueueSpec(weight=weight, reclaimable=True),
    )


# Jobs


def _jobs(
    lines: Iterable[str],
    path: str,
    problems: csv_rows.Problems,
    queues: set[str] | None,
    reservations: set[str],
) -> Iterator[workload.Job]:
    lines = iter(lines)
    header = next(lines, "")
    is_philly = "num_gpus" in [name.strip() for name in header.split(",")]
    known = PHILLY_JOBS if is_philly else JOB_COLUMNS
    required = PHILLY_JOBS[:3] if is_philly else JOB_COLUMNS[1:3]
    rows = csv_rows.rows(_chain(header, lines), path, known, required, problems)
    parsed_jobs = _philly_jobs(rows) if is_philly else _plain_jobs(rows)
    names: dict[str, int] = {}
    for row, job in parsed_jobs:
        if job.name in names:
            row.fail("job", f"{job.name} is in line {names[job.name]} already; write another name")
        names[job.name] = row.line
        if queues is not None and job.queue not in queues:
            row.fail("queue", f"{job.queue!r} is not in the file of --queues; add it there")
        if job.reservation and job.reservation not in reservations:
            row.fail(
                "reservation", f"{job.reservation!r} is not in the file of --reservations; add it"
            )
        yield job


def _chain(header: str, lines: Iterator[str]) -> Iterator[str]:
    yield header
    yield from lines


def _plain_jobs(rows: Iterable[csv_rows.Row]) -> Iterator[tuple[csv_rows.Row, workload.Job]]:
    for number, row in enumerate(rows, 1):
        tasks = row.integer("tasks", 1, least=1)
        least = row.integer("min_available", tasks, least=1)
        if least > tasks:
            row.fail(
                "min_available",
                f"{least} is more than {counted(tasks, 'task')}; write at most that",
            )
        labels = _labels(row, "node_selector")
        yield (
            row,
            workload.Job(
                _name(row, "job", f"job-{number}"),
                _us(row.number("submit_s")),
                _us(row.number("duration_s")),
                tasks,
                least,
                _resources(row, default_cpu=0.0 if row.has("gpu") else 1.0),
                _name(row, "queue", "default"),
                row.signed("priority", 0),
                row.flag("preemptable"),
                ";".join(f"{name}={value}" for name, value in labels.items()),
                row.flag("synchronous") or False,
                _us(row.number("estimate_s", 0.0)),
                _data_sets(row),
                row.text("reservation"),
            ),
        )


def _philly_jobs(
    rows: Iterable[csv_rows.Row],
) -> Iterator[tuple[csv_rows.Row, workload.Job]]:
    """Jobs of the Philly trace, which has only a number of GPUs: gangs of equal tasks, each with at
    most the GPUs of a node."""
    read_rows = [(row, row.date("timestamp")) for row in rows]
    first = min((at for _, at in read_rows), default=0.0)
    for number, (row, at) in enumerate(read_rows, 1):
        gpus = row.integer("num_gpus", 1, least=1)
        per_task = max(size for size in range(1, PHILLY_GPUS + 1) if gpus % size == 0)
        tasks = gpus // per_task
        yield (
            row,
            workload.Job(
                f"job-{number}",
                _us(at - first),
                _us(row.number("duration")),
                tasks,
                tasks,
                workload.Resources(gpus=per_task),
                _name(row, "cluster", "default"),
            ),
        )


# Failures


def _failures(
    lines: Iterable[str], path: str, problems: csv_rows.Problems, nodes: set[str]
) -> Iterator[workload.NodeFailure]:
    rows = csv_rows.rows(lines, path, FAILURE_COLUMNS, FAILURE_COLUMNS[:2], problems)
    for row in rows:
        node, down = row.text("node"), row.number("down_s")
        if node not in nodes:
            row.fail("node", f"{node!r} is not in the file of --nodes; write one of its names")
        up_us = workload.NEVER_US
        if row.has("up_s"):
            up_us = _us(row.number("up_s"))
            if up_us <= _us(down):
                row.fail("up_s", f"{row.text('up_s')!r}; write a time after down_s, or nothing")
        yield workload.NodeFailure(node, _us(down), up_us)


# Fields


def _us(seconds: float) -> int:
    return round(seconds * workload.SECOND_US)


def _resources(row: csv_rows.Row, default_cpu: float) -> workload.Resources:
    return workload.Resources(
        round(row.number("cpu", default_cpu) * 1000),
        round(row.number("memory_gib", 0.0) * _GIB),
        row.integer("gpu", 0),
    )


def _name(row: csv_rows.Row, column: str, default: str = "") -> str:
    text = row.text(column, default)
    if not text:
        row.fail(column, "is empty; write a name")
    elif not _NAMES.issuperset(text) or len(text) > 200:
        row.fail(column, f"{text[:50]!r}; write letters, digits, - _ and . only, at most 200")
    return text


def _data_sets(row: csv_rows.Row) -> tuple[data_sets.DataSetRequest, ...]:
    """The column ``data_sets``: names with GiB, as ``images=120;weights=8``."""
    locality = row.text("data_locality", data_sets.PREFERRED)
    if locality not in (data_sets.PREFERRED, data_sets.REQUIRED):
        row.fail("data_locality", f"{locality!r}; write Preferred or Required")
    sharing = row.text("data_sharing")
    if sharing not in ("", data_sets.SHARE, data_sets.SPREAD):
        row.fail("data_sharing", f"{sharing!r}; write Share or Spread, or nothing")
    requests = []
    for name, gib in _labels(row, "data_sets").items():
        size = row.parsed("data_sets", gib)
        each = batch.DataSet(
            name=name,
            uri=f"s3://simulated/{name}",
            size=round(size * _GIB),
            locality=locality,
            sharing=sharing,
        )
        requests.append(data_sets.request_of(each))
    return tuple(requests)


def _labels(row: csv_rows.Row, column: str) -> dict[str, str]:
    try:
        return objects.parse_labels(row.text(column))
    except ValueError as error:
        row.fail(column, str(error))
        return {}
