"""Reads the lists of nodes and pods of a GPU trace into columns.

A node has GPUs of one model, each of 1000 milli. A pod requests a part of one GPU or whole ones.
Pods with equal requests have the same *shape*; rules depend on shapes alone. Format:
``openb_node_list_*`` and ``openb_pod_list_*`` of Alibaba's cluster-trace-gpu-v2023.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

WHOLE_MILLI = 1000
"""One whole GPU."""
MOST_MODELS = MOST_GPUS = 62
"""Sets of models, and of a node's GPUs, are bits of one integer."""
ABSENT = -1
"""The value of columns beyond the node's number of GPUs."""

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")

Integers = npt.NDArray[np.int64]


class TraceError(ValueError):
    """A list that cannot be used. The message names file, line, reason, and what is expected."""


@dataclass(frozen=True)
class Nodes:
    """The nodes, one row each, in the order of the list.

    ``gpu_milli``: nodes x GPUs, ``ABSENT`` beyond the node's number. ``model``: index in
    ``models``.
    """

    cpu_milli: Integers
    memory_mib: Integers
    gpu_milli: Integers
    model: Integers
    models: tuple[str, ...]

    @property
    def total_milli(self) -> int:
        """Return the GPU capacity of all nodes."""
        return int(self.gpu_milli[self.gpu_milli > 0].sum())


class Shape(NamedTuple):
    """The request of a pod: a row of ``Pods.shapes``, in this order.

    ``gpu_milli`` is per GPU. Bit i of ``models`` says whether model i is accepted.
    """

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: int


@dataclass(frozen=True)
class Pods:
    """``shapes``: shapes x 5, rows as ``Shape``. ``shape_of``: the row of each pod of the list."""

    shapes: Integers
    shape_of: Integers

    @property
    def gpu_milli(self) -> Integers:
        """Return the GPU milli that one pod of each shape takes, over all its GPUs."""
        return self.shapes[:, 2] * self.shapes[:, 3]

    @property
    def counts(self) -> Integers:
        """Return the number of pods of each shape in the list."""
        return np.bincount(self.shape_of, minlength=len(self.shapes)).astype(np.int64)


def read_nodes(lines: Iterable[str], path: str) -> Nodes:
    """Return the nodes of a list with the columns ``NODE_COLUMNS``. Raises TraceError."""
    cpus, memories, gpus, names = [], [], [], []
    for row in _rows(lines, path, NODE_COLUMNS):
        cpus.append(row.number("cpu_milli"))
        memories.append(row.number("memory_mib"))
        gpus.append(row.number("gpu"))
        names.append(row.text("model"))
        if gpus[-1] > MOST_GPUS:
            row.fail("gpu", f"{gpus[-1]} GPUs, at most {MOST_GPUS} are supported")
    models = tuple(sorted(set(names)))
    if not sum(gpus):
        raise TraceError(f"{path}: no node has a GPU: specify a list of GPU nodes")
    if len(models) > MOST_MODELS:
        raise TraceError(f"{path}: {len(models)} GPU models, at most {MOST_MODELS} are supported")
    left = np.full((len(gpus), max(gpus)), ABSENT, np.int64)
    for node, count in enumerate(gpus):
        left[node, :count] = WHOLE_MILLI
    place = {model: index for index, model in enumerate(models)}
    return Nodes(
        np.array(cpus, np.int64),
        np.array(memories, np.int64),
        left,
        np.array([place[name] for name in names], np.int64),
        models,
    )


def read_pods(lines: Iterable[str], path: str, models: tuple[str, ...]) -> Pods:
    """Return the pods of a list with the columns ``POD_COLUMNS``. Raises TraceError.

    The optional column ``gpu_spec`` holds allowed models separated by ``|``; if it is absent or
    empty, all models are allowed. A model that no node has allows nothing.
    """
    places: dict[Shape, int] = {}
    shape_of = [places.setdefault(shape, len(places)) for shape in _shapes(lines, path, models)]
    if not any(shape.gpus for shape in places):
        raise TraceError(f"{path}: no pod requests a GPU: there is nothing to measure")
    return Pods(np.array(list(places), np.int64), np.array(shape_of, np.int64))


def _shapes(lines: Iterable[str], path: str, models: tuple[str, ...]) -> Iterator[Shape]:
    for row in _rows(lines, path, POD_COLUMNS):
        gpus, milli = row.number("num_gpu"), row.number("gpu_milli")
        if gpus == 0 and milli:
            row.fail("gpu_milli", f"{milli}, although num_gpu is 0: write 0")
        if gpus and not 0 < milli <= WHOLE_MILLI:
            row.fail("gpu_milli", f"{milli} is not within 1..{WHOLE_MILLI}, thousandths of one GPU")
        if gpus > 1 and milli != WHOLE_MILLI:
            row.fail(
                "gpu_milli", f"{milli} on {gpus} GPUs: a fraction can be requested of one GPU only"
            )
        allowed = row.text("gpu_spec").split("|") if row.text("gpu_spec") else models
        bits = sum(1 << place for place, model in enumerate(models) if model in allowed)
        yield Shape(row.number("cpu_milli"), row.number("memory_mib"), gpus, milli, bits)


class _Row:
    def __init__(self, path: str, line: int, cells: dict[str, str]) -> None:
        self._path, self._line, self._cells = path, line, cells

    def fail(self, column: str, reason: str) -> None:
        raise TraceError(f"{self._path}:{self._line}: {column}: {reason}")

    def text(self, column: str) -> str:
        return (self._cells.get(column) or "").strip()

    def number(self, column: str) -> int:
        text = self.text(column)
        if not (text.isascii() and text.isdigit()):
            self.fail(column, f"{text!r} is not a whole number of at least 0")
        return int(text)


def _rows(lines: Iterable[str], path: str, columns: tuple[str, ...]) -> Iterator[_Row]:
    reader = csv.DictReader(lines)
    row_count = 0
    try:
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
        if missing:
            raise TraceError(
                f"{path}:1: no column {', '.join(missing)}: the first line must name "
                f"{', '.join(columns)}; further columns are ignored"
            )
        for cells in reader:
            short = [name for name in columns if cells[name] is None]
            if short:
                raise TraceError(f"{path}:{reader.line_num}: column {short[0]} is missing")
            row_count += 1
            yield _Row(path, reader.line_num, cells)
    except csv.Error as error:
        raise TraceError(f"{path}:{reader.line_num}: {error}: the file must be CSV") from error
    if not row_count:
        raise TraceError(f"{path}: no data after the header line; add at least one row")
