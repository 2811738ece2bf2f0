"""The resources of a cluster and the column of each in vectors and tables.

A resource has a column while a node or a queue *offers* it or a pod or PodGroup *requests* it. Any
user can request arbitrary resource names, and each column costs one number per node in several
tables. Therefore:

1. Names that are requested and not offered are limited to ``MAX_NAMES``. An object with names
   beyond the limit is refused.
2. A refused object is retried when room for its names is free again, or when a node or queue offers
   them (``take_retriable``).
3. A column without users is removed by the next ``compact``.

cpu, memory and pods always have the columns 0, 1 and 2.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

PERMANENT = ("cpu", "memory", "pods")
"""Names of the first columns, which every cluster has."""
_PERMANENT = frozenset(PERMANENT)
MAX_NAMES = 128
"""Maximum number of names that are requested and not offered."""
MAX_INTERNED = 4096
"""Limit of name sets shared between objects. When it is reached, the shared sets are dropped."""
MAX_RETRIED = 1000
"""Refused objects that one ``take_retriable`` examines."""

Owner: TypeAlias = tuple[str, str]
"""(kind, key) of the object that offers or requests resources."""
Sources: TypeAlias = npt.NDArray[np.intp]
"""New column -> the column it was, -1 for a new one."""


class TooManyNamesError(ValueError):
    """An object requests resources that no node or queue has, and there are ``MAX_NAMES`` such
    names already."""


class Resources:
    """Resource name -> column, with the objects that use each name.

    ``names``: by column. Objects are identified by (kind, key); a later call for an object replaces
    its earlier names.
    """

    def __init__(self) -> None:
        self.names = list(PERMANENT)
        self._columns = {name: column for column, name in enumerate(self.names)}
        self._offered: Counter[str] = Counter()
        self._requested: Counter[str] = Counter()
        self._only_requested: set[str] = set()
        self._offers: dict[Owner, frozenset[str]] = {}
        self._requests: dict[Owner, frozenset[str]] = {}
        self._interned: dict[frozenset[str], frozenset[str]] = {}
        self._refused: dict[Owner, frozenset[str]] = {}
        self._retriable: dict[Owner, None] = {}

    def known(self, name: str) -> int | None:
        """The column of a resource; None for one that has no column."""
        return self._columns.get(name)

    def offer(self, owner: Owner, names: Iterable[str]) -> None:
        """Record the resources that a node or queue has. O(refused objects) for a new name."""
        named = self._without_permanent(names)
        before = self._offers.pop(owner, frozenset())
        if named:
            self._offers[owner] = named
        added = {name for name in named if not self._offered[name]}
        self._offered.update(named)
        self._subtract(self._offered, before)
        if added:
            self._retriable |= {
                each: None for each, wanted in self._refused.items() if added & wanted
            }
        self._update(named | before)

    def request(self, owner: Owner, amounts: Mapping[str, int]) -> None:
        """Record the amounts that a pod or PodGroup requests; names with amount zero need no
        column.

        Raises TooManyNamesError; the object then requests nothing.
        """
        self.drop(owner)
        if amounts.keys() <= _PERMANENT:
            return
        named = self._without_permanent(name for name, amount in amounts.items() if amount)
        if not named:
            return
        new = {
            name for name in named if not self._offered[name] and name not in self._only_requested
        }
        if len(self._only_requested) + len(new) > MAX_NAMES:
            self._refused[owner] = named
            raise TooManyNamesError(
                f"{min(new)[:80]}: no node or queue has this resource, and {MAX_NAMES} such names "
                "are requested already"
            )
        self._requests[owner] = named
        self._requested.update(named)
        self._update(named)

    def drop(self, owner: Owner) -> None:
        """Record that the pod or PodGroup no longer requests anything."""
        if self._refused:
            self._refused.pop(owner, None)
            self._retriable.pop(owner, None)
        named = self._requests.pop(owner, None)
        if named is not None:
            self._subtract(self._requested, named)
            self._update(named)

    def take_retriable(self) -> list[Owner]:
        """Refused objects whose names may have room now; each is returned once after each change
        that may help it."""
        retriable = list(self._retriable)
        self._retriable.clear()
        room = MAX_NAMES - len(self._only_requested)
        if not self._refused or not room:
            return retriable
        for owner in list(itertools.islice(self._refused, MAX_RETRIED)):
            named = self._refused.pop(owner)
            self._refused[owner] = named  # to the end, so that every object has its turn
            new = sum(not self._offered[name] for name in named - self._only_requested)
            if new <= room and owner not in retriable:
                retriable.append(owner)
                room -= new
        return retriable

    def compact(self) -> Sources | None:
        """Remove columns without users. Returns the old column of each remaining one; None if no
        column was removed."""
        kept = [
            column
            for column, name in enumerate(self.names)
            if column < len(PERMANENT) or self._offered[name] or self._requested[name]
        ]
        if len(kept) == len(self.names):
            return None
        self.names = [self.names[column] for column in kept]
        self._columns = {name: column for column, name in enumerate(self.names)}
        return np.array(kept, np.intp)

    def _update(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            if self._requested[name] and not self._offered[name]:
                self._only_requested.add(name)
            else:
                self._only_requested.discard(name)
            if name not in self._columns and (self._requested[name] or self._offered[name]):
                self._columns[name] = len(self.names)
                self.names.append(name)

    def _without_permanent(self, names: Iterable[str]) -> frozenset[str]:
        non_permanent = frozenset(names).difference(PERMANENT)
        if len(self._interned) >= MAX_INTERNED:
            self._interned.clear()
        return self._interned.setdefault(non_permanent, non_permanent)

    @staticmethod
    def _subtract(counts: Counter[str], names: Iterable[str]) -> None:
        for name in names:
            counts[name] -= 1
            if not counts[name]:
                del counts[name]
