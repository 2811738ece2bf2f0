"""The policy ``fragmentation`` of ``deviceshare``: leave cards as the usual pods can use them.

The measures are those of ``core.packing``: a card is as free as the scarcer of its memory and its
compute, in thousandths. The usual pods are those that are on the nodes with cards and those that
wait. A choice counts by the growth of what such pods cannot use, then by the growth of what stays
free when one kind of them fills the node.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, requirements
from stromboli.scheduler.core.packing import kernels, policies, trace
from stromboli.scheduler.core.plugins.deviceshare import cards

Tell = Callable[[entities.Task], cards.GpuRequest | None]
_MIB = 2**20


def compile_kernels() -> None:
    """Have the measures compiled before a session needs them: 2 s, once for all processes."""
    mix = policies.mixed([{}], 0)
    state = (0, 0, np.zeros(1, np.int64), 0, mix)
    kernels.fragmented(*state)
    kernels.stranded(*state)
    kernels.hundredths(0)


class Packing:
    """Chooses cards on any node of a session."""

    def __init__(
        self, within: session.Session, stock: Mapping[int, Sequence[cards.Card]], tell: Tell
    ) -> None:
        self._nodes = within.nodes
        self._models: dict[tuple[str, str, int], int] = {}
        examples: list[cards.Card] = []
        self._model_of: dict[int, int] = {}
        for row, owned in stock.items():
            first = owned[0]
            sort = (first.kind, first.mode, first.memory_mib)
            if sort not in self._models:
                self._models[sort] = len(examples)
                examples.append(msgspec.structs.replace(first, is_healthy=True))
            self._model_of[row] = self._models[sort]
        usual = Counter(
            (wish._replace(apart="", ids=(), not_ids=()), *_size(task))
            for task in _tasks(within, stock)
            if (wish := tell(task)) is not None
        )
        self._mix = _mix(usual, examples)

    def fit(
        self,
        row: int,
        trial: list[cards.Card],
        wish: cards.GpuRequest,
        owner: cards.Owner,
        task: entities.Task,
        before: int,
    ) -> tuple[cards.Given, float] | None:
        """As ``cards.fit``; worth 0 to 100, 50 for what neither helps nor harms.

        ``before``: tasks like it that are to be there first; below 0, so many are counted there
        already that come with it or after it.
        """
        cpu, memory = _size(task)
        idle = self._nodes.idle[:, row]
        room = (
            int(idle[requirements.CPU]) - (before + 1) * cpu,
            int(idle[requirements.MEMORY]) // _MIB - (before + 1) * memory,
        )
        begun = self._measures(row, room[0] + cpu, room[1] + memory, trial)

        def order(left: Sequence[cards.Card], want: cards.Want) -> Iterable[cards.Card]:
            now = _left(trial)
            milli = {card.uuid: _milli(card, want) for card in left}
            return sorted(
                left, key=lambda card: self._rank(row, room, trial, now, card, milli[card.uuid])
            )

        found = cards.fit(trial, wish, owner, cards.Policy(order, lambda card, share: 0.0))
        if found is None:
            return None
        return found[0], self._worth(begun, self._measures(row, *room, trial))

    def _rank(
        self,
        row: int,
        room: tuple[int, int],
        trial: Sequence[cards.Card],
        now: trace.Integers,
        card: cards.Card,
        milli: int,
    ) -> tuple[int, int, int]:
        after = now.copy()
        at = next(place for place, each in enumerate(trial) if each is card)
        after[at] = max(0, after[at] - milli)
        return (*self._of(row, *room, after), card.place)

    def _measures(
        self, row: int, cpu: int, memory: int, owned: Sequence[cards.Card]
    ) -> tuple[int, int]:
        return self._of(row, cpu, memory, _left(owned))

    def _of(self, row: int, cpu: int, memory: int, left: trace.Integers) -> tuple[int, int]:
        """What the usual pods cannot use, and what stays free when one kind comes."""
        state = (cpu, memory, left, self._model_of[row], self._mix)
        return int(kernels.fragmented(*state)), int(kernels.stranded(*state))

    def _worth(self, before: tuple[int, int], after: tuple[int, int]) -> float:
        pods = max(1, self._mix.total)
        unusable, staying = (
            int(kernels.hundredths((then - now) // pods))
            for then, now in zip(before, after, strict=True)
        )
        return unusable + staying / 100


def _tasks(within: session.Session, stock: Iterable[int]) -> Iterable[entities.Task]:
    for row in stock:
        yield from within.nodes.tasks[row].values()
    for job in within.waiting_jobs():
        yield from job.by_status.get(entities.Status.PENDING, {}).values()


def _size(task: entities.Task) -> tuple[int, int]:
    """Cpu (milli) and memory (MiB) that a task asks for."""
    return int(task.request[requirements.CPU]), -(-int(task.request[requirements.MEMORY]) // _MIB)


def _mix(
    usual: Mapping[tuple[cards.GpuRequest, int, int], int], examples: Sequence[cards.Card]
) -> policies.Mix:
    """The usual pods by kind of card, one of each in ``examples``."""
    found: list[dict[tuple[int, ...], int]] = []
    for card in examples:
        kinds: dict[tuple[int, ...], int] = {}
        for (wish, cpu, memory), pods in usual.items():
            if wish.allows(card):
                wants = [want for want in wish.containers if want.number]
                milli = max(_milli(card, want) for want in wants)
                kind = (cpu, memory, sum(want.number for want in wants), milli)
                kinds[kind] = kinds.get(kind, 0) + pods
        found.append(kinds)
    return policies.mixed(found, sum(usual.values()))


def _milli(card: cards.Card, want: cards.Want) -> int:
    """Thousandths of the card that a want takes, at least one."""
    memory = -(-want.memory_on(card) * 1000 // card.memory_mib) if card.memory_mib else 0
    return max(1, memory, want.cores * 10)


def _left(owned: Sequence[cards.Card]) -> trace.Integers:
    """Thousandths of each card that are free, none where no further user may come."""
    free = []
    for card in owned:
        memory = card.used_mib * 1000 // card.memory_mib if card.memory_mib else 0
        is_open = card.is_healthy and len(card.users) < card.most_users
        free.append(max(0, 1000 - max(memory, card.used_cores * 10)) if is_open else 0)
    return np.array(free, np.int64)
