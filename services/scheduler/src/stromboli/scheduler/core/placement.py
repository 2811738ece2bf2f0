"""Placing gangs on the board: each in a trial that is kept whole or taken back."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from stromboli.scheduler.core import board, candidates, configuration, gangs, shapes

Trial = list[tuple[gangs.Task, int]]


class Step(NamedTuple):
    """Something to try for a candidate, at its place in the order."""

    order: candidates.Order
    candidate: candidates.Candidate
    run: Callable[[board.Board, candidates.Candidate], None]


def steps(
    inside: list[candidates.Candidate], policy: configuration.Configuration, seed: int
) -> list[Step]:
    """All that is to be tried, in order.

    With gangs: each gang's minimum, and what it has beyond at the place of a gang that is whole,
    so that no gang's surplus takes what another of its priority needs to begin.
    """
    found = _of_gangs(inside) if policy.gang else _of_singles(inside, policy, seed)
    return sorted(found, key=lambda step: step.order)


def _of_gangs(inside: list[candidates.Candidate]) -> Iterator[Step]:
    for candidate in inside:
        if not candidate.is_ready:
            yield Step(candidate.order, candidate, place_minimum)
        yield Step(candidate.surplus_order, candidate, place_surplus)


def _of_singles(
    inside: list[candidates.Candidate], policy: configuration.Configuration, seed: int
) -> Iterator[Step]:
    for candidate in inside:
        for task in candidate.tasks:
            order: candidates.Order = (*candidate.order, *task.order)
            if policy.job_order == "shuffle":
                order = (candidates.shuffled(seed, task.key), task.key)
            yield Step(order, candidate, partial(_place_single, task=task))


def place_minimum(free: board.Board, candidate: candidates.Candidate) -> None:
    """Place tasks until the gang is whole; if it cannot be, take all of it back."""
    gang, group = candidate.gang, candidate.group
    if gang.ready + len(candidate.tasks) < group.spec.min_member:
        return
    trial: Trial = []
    roles: dict[str, int] = {}
    failed: set[shapes.Shape] = set()
    for task in candidate.tasks:
        if _place(free, candidate, task, trial, failed):
            roles[task.role] = roles.get(task.role, 0) + 1
            if gangs.is_ready(gang, group, roles):
                candidate.placed = trial
                candidate.is_ready = True
                candidate.failure = None
                return
    free.undo((task.shape, row) for task, row in trial if task.shape)
    candidate.fitting = len(trial)


def place_surplus(free: board.Board, candidate: candidates.Candidate) -> None:
    """A whole gang takes for its further tasks what fits, one by one."""
    if not candidate.is_ready:
        return
    failed: set[shapes.Shape] = set()
    done = {task.key for task, _ in candidate.placed}
    for task in candidate.tasks:
        if task.key not in done:
            _place(free, candidate, task, candidate.placed, failed)


def _place_single(free: board.Board, candidate: candidates.Candidate, task: gangs.Task) -> None:
    _place(free, candidate, task, candidate.placed, set())


def _place(
    free: board.Board,
    candidate: candidates.Candidate,
    task: gangs.Task,
    placed: Trial,
    failed: set[shapes.Shape],
) -> bool:
    """Place one task if a node takes it. A shape that failed once in a trial fails again: what is
    free only shrinks."""
    if task.shape is None or task.shape in failed:
        return False
    row = free.place(task.shape)
    if row < 0:
        failed.add(task.shape)
        if candidate.failure is None:
            candidate.failure = candidates.Failure(task, free.refusals(task.shape))
        return False
    placed.append((task, row))
    return True
