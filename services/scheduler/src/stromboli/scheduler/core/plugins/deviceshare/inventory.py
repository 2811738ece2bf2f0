"""The cards of a session's nodes, and which tasks have what of them.

Read from nodes and the pods on them when the first task asks; what was read of a node is kept for
later sessions, until it or a pod on it is another object. From then on it follows what the session
places and takes back: a trial that is discarded leaves every card as it was, and a task that was to
be evicted and stays has what it had.
"""

import operator
from collections import Counter
from collections.abc import Callable, Hashable

import msgspec

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, requirements
from stromboli.scheduler.core.plugins.deviceshare import cards, gpu_annotations
from stromboli.shared.api import core

NAME = "deviceshare"
Choose = Callable[
    [int, list[cards.Card], cards.GpuRequest, cards.Owner, int, entities.Task], "Answer | None"
]
"""(row, cards to be changed, wish, owner, tasks like it that come there before, task) -> what it
gets. Below 0: so many of those that are counted there already are this one and what follows it."""


_Question = tuple[int, tuple[int, int], cards.GpuRequest, str, int, tuple[int, ...]]
"""State of a node's cards, row with its version if it matters whose they are, wish, job, tasks
before, what else of the node counts."""


class Answer(msgspec.Struct, frozen=True):
    """What a task would be given on a node, and what that is worth."""

    given: cards.Given
    worth: float


class _Held(msgspec.Struct, frozen=True):
    row: int
    given: cards.Given


class _Seen(msgspec.Struct, frozen=True, eq=False):
    """What a node and the pods on it say: its cards with their users, and task -> what it has.
    ``problem``: what of it cannot be read."""

    node: core.Node
    pods: list[core.Pod]
    owned: list[cards.Card]
    held: dict[str, cards.Given]
    problem: str
    state: tuple[Hashable, ...]


class Stock:
    """Cards by row of the session's nodes."""

    def __init__(
        self,
        within: session.Session,
        dialect: gpu_annotations.Dialect,
        choose: Choose,
        *,
        by_room: bool,
        by_place: bool = False,
        version: object = None,
    ) -> None:
        """``by_room``: choices also look at the cpu and memory that are idle on the node;
        ``by_place``: at which cards these are.
        ``version``: of how nodes and pods are read; what another one read does not count."""
        self._by_room = by_room
        self._by_place = by_place
        self._session = within
        self._dialect = dialect
        self._choose = choose
        self._wishes: dict[str, cards.GpuRequest | None] = {}
        self.cards: dict[int, list[cards.Card]] = {}
        self.problems: dict[int, str] = {}
        """Row -> what there cannot be read; nothing is given there."""
        self._held: dict[str, _Held] = {}
        self._first: dict[str, _Held] = {}
        """What tasks had when the session began."""
        self.given_here: dict[int, set[str]] = {}
        """Row -> tasks that this session gave something."""
        self._answers: dict[_Question, Answer | None] = {}
        self._states: dict[int, int] = {}
        """Row -> number of the state its cards are in; of those that changed, none."""
        self._state_numbers: dict[object, int] = {}
        self._versions: Counter[int] = Counter()
        """Row -> how often its cards have changed."""
        self._own: set[int] = set()
        """Rows whose cards are this session's own, and not those that are kept."""
        kept = within.world.surroundings.remembered(NAME, (version,), dict[str, _Seen])
        for row, name in enumerate(within.nodes.names):
            seen = self._seen(row, kept.get(name))
            kept[name] = seen
            if seen.problem:
                self.problems[row] = seen.problem
            if seen.owned:
                self.cards[row] = seen.owned
                self._states[row] = self._number(seen.state)
                for uid, given in seen.held.items():
                    self._held[uid] = _Held(row, given)
        for name in set(kept) - set(within.nodes.rows):
            del kept[name]
        self._first = dict(self._held)
        self.problems_told = [
            f"cards of node {within.nodes.names[row]}: {why}"
            for row, why in sorted(self.problems.items())
        ]

    def _seen(self, row: int, before: _Seen | None) -> _Seen:
        """What is said on a row: as it was before, if it is of the same objects."""
        node = self._session.nodes.objects[row]
        tasks = list(self._session.nodes.tasks[row].values())
        pods = [task.pod for task in tasks]
        is_known = (
            before is not None
            and before.node is node
            and len(before.pods) == len(pods)
            and all(map(operator.is_, before.pods, pods))
        )
        return before if before is not None and is_known else self._read(node, pods, tasks)

    def _read(self, node: core.Node, pods: list[core.Pod], tasks: list[entities.Task]) -> _Seen:
        problem, found = "", list[cards.Card]()
        held: dict[str, cards.Given] = {}
        try:
            found = self._dialect.cards_of(node)
        except ValueError as error:
            problem = str(error)
        for task in tasks if found else ():
            try:
                wish = self._dialect.wish_of(task.pod)
                given = self._dialect.given_to(task.pod) if wish else None
            except ValueError as error:
                problem = f"pod {task.key}: {error}"
                continue
            if wish is not None and given is not None:
                _put(found, cards.Owner(task.uid, task.job, wish.rules), given)
                held[task.uid] = given
        return _Seen(node, pods, found, held, problem, tuple(card.state for card in found))

    def wish_of(self, task: entities.Task) -> cards.GpuRequest | None:
        """What the task wants; None if nothing. Raises ValueError."""
        if task.uid not in self._wishes:
            self._wishes[task.uid] = self._dialect.wish_of(task.pod)
        return self._wishes[task.uid]

    def answer(self, task: entities.Task, row: int, before: int) -> Answer | None:
        """What a task like it would be given on the node after ``before`` of them, by cards of the
        same kind and state, if not by these; None if not enough.

        Nodes whose cards are alike get one answer: most of a large cluster is.
        """
        wish = self.wish_of(task)
        if wish is None or row not in self.cards or row in self.problems:
            return None
        is_choosy = self._by_place or bool(wish.ids or wish.not_ids or wish.apart or wish.rules)
        idle = self._session.nodes.idle[: requirements.PODS, row].tolist() if self._by_room else ()
        key = (
            self._state(row),
            (row, self._versions[row]) if is_choosy else (-1, 0),
            wish,
            task.job if wish.apart else "",
            before,
            tuple(idle),
        )
        if key not in self._answers:
            trial = cards.copied(self.cards[row])
            found = None
            for earlier in range(before + 1):
                found = self._tried(task, row, trial, earlier, f"{task.uid}+{earlier}")
                if found is None:
                    break
            self._answers[key] = found
        return self._answers[key]

    def _state(self, row: int) -> int:
        number = self._states.get(row)
        if number is None:
            number = self._number(tuple(card.state for card in self.cards[row]))
            self._states[row] = number
        return number

    def _number(self, state: tuple[Hashable, ...]) -> int:
        return self._state_numbers.setdefault(state, len(self._state_numbers))

    def _ours(self, row: int) -> list[cards.Card]:
        """The row's cards, to be changed."""
        if row not in self._own:
            self._own.add(row)
            self.cards[row] = cards.copied(self.cards[row])
        return self.cards[row]

    def _tried(
        self, task: entities.Task, row: int, trial: list[cards.Card], before: int, uid: str
    ) -> Answer | None:
        wish = self.wish_of(task)
        if wish is None:
            return None
        owner = cards.Owner(uid, task.job, wish.rules)
        return self._choose(row, trial, wish, owner, before, task)

    def put(self, task: entities.Task, following: int) -> None:
        """The task was placed or promised, or stays after all; ``following``: tasks like it that
        were so together with it on the same node and are told of later."""
        row = self._session.nodes.rows.get(task.node)
        if row is None or task.uid in self._held or row not in self.cards:
            return
        had = self._first.get(task.uid)
        if had is not None and had.row == row:
            self._hold(task, had)
            return
        trial = cards.copied(self.cards[row])
        found = self._tried(task, row, trial, -1 - following, task.uid)
        if found is not None:
            self._hold(task, _Held(row, found.given))
            self.given_here.setdefault(row, set()).add(task.uid)

    def take(self, task: entities.Task) -> None:
        """The task goes."""
        held = self._held.pop(task.uid, None)
        if held is None:
            return
        for card in self._ours(held.row):
            card.drop(task.uid)
        self.given_here.get(held.row, set()).discard(task.uid)
        self._changed(held.row)

    def given_to(self, task: entities.Task) -> cards.Given | None:
        """What this session gave the task."""
        held = self._held.get(task.uid)
        return None if held is None or task.uid in self._first else held.given

    def _hold(self, task: entities.Task, held: _Held) -> None:
        wish = self.wish_of(task)
        owner = cards.Owner(task.uid, task.job, wish.rules if wish else frozenset())
        _put(self._ours(held.row), owner, held.given)
        self._held[task.uid] = held
        self._changed(held.row)

    def _changed(self, row: int) -> None:
        self._states.pop(row, None)
        self._versions[row] += 1


def _put(some: list[cards.Card], owner: cards.Owner, given: cards.Given) -> None:
    by_id = {card.uuid: card for card in some}
    for shares in given:
        for share in shares:
            if share.uuid in by_id:  # one that is gone cannot be given to others either
                by_id[share.uuid].put(owner, share)
