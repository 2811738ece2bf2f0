"""GPU cards that several pods share, and which of them a pod is given (spec/topology 3).

A card has memory, 100 parts of compute and a number of users. A pod wants, container by container,
a number of cards with some of both on each. Everything here is a function of one node's cards.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from stromboli.scheduler.core.plugins.deviceshare import mig

ALL_CORES = 100
"""A card's compute, in percent."""
UNLIMITED = 2**31
"""Users of a card that has no limit."""
MIG = "mig"


class Want(NamedTuple):
    """What a container wants: ``number`` cards, on each ``percent`` of the memory or, where that is
    0, ``memory_mib``, and ``cores`` percent of the compute; 100 of them mean the card alone."""

    number: int
    memory_mib: int = 0
    percent: int = 0
    cores: int = 0

    def memory_on(self, card: "Card") -> int:
        """MiB of this card."""
        return card.memory_mib * self.percent // 100 if self.percent else self.memory_mib


class GpuRequest(NamedTuple):
    """What a pod wants; equal wishes get equal answers. A container without cards wants 0.

    ``mode``: empty for any. ``types`` and ``not_types``: upper-case parts of a card's type; ``ids``
    and ``not_ids``: cards; the first of both empty: any. ``apart``: the job whose pods share no
    card, empty if they may. ``rules``: of those rules no two pods share a card.
    """

    containers: tuple[Want, ...]
    mode: str = ""
    types: tuple[str, ...] = ()
    not_types: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    not_ids: tuple[str, ...] = ()
    apart: str = ""
    rules: frozenset[int] = frozenset()

    def allows(self, card: "Card") -> bool:
        """Whether the card is one that the pod may have at all."""
        kind = card.kind.upper()
        return (
            card.is_healthy
            and self.mode in ("", card.mode)
            and (not self.ids or card.uuid in self.ids)
            and card.uuid not in self.not_ids
            and (not self.types or any(part in kind for part in self.types))
            and not any(part in kind for part in self.not_types)
        )


class Share(msgspec.Struct, frozen=True):
    """What a container has of a card. ``instance``: of a divided card, ``group-position``."""

    uuid: str
    memory_mib: int
    cores: int
    instance: str = ""


class Owner(NamedTuple):
    """A pod that has shares. ``job``: empty for none."""

    uid: str
    job: str
    rules: frozenset[int] = frozenset()


Given = tuple[tuple[Share, ...], ...]
"""Shares by container."""


class Card(msgspec.Struct, eq=False):
    """A card and who has what of it. ``place``: its number on the node."""

    uuid: str
    place: int
    most_users: int
    memory_mib: int
    kind: str = ""
    mode: str = ""
    is_healthy: bool = True
    layouts: tuple[mig.Group, ...] = ()
    """How it can be divided, if its mode is ``mig``."""
    users: tuple[tuple[Owner, Share], ...] = ()
    used_mib: int = 0
    used_cores: int = 0

    @property
    def state(self) -> tuple[Hashable, ...]:
        """Cards of the same state give the same, to those who do not care which card or beside
        whom."""
        kind = (self.kind, self.mode, self.is_healthy, self.most_users, self.memory_mib)
        instances = tuple(sorted(share.instance for _, share in self.users))
        return (*kind, self.used_mib, self.used_cores, len(self.users), instances)

    def put(self, owner: Owner, share: Share) -> None:
        """The owner has this share as well."""
        self.users += ((owner, share),)
        self._recount()

    def drop(self, uid: str) -> None:
        """The pod has nothing of it any more."""
        self.users = tuple(user for user in self.users if user[0].uid != uid)
        self._recount()

    def _recount(self) -> None:
        self.used_mib = sum(share.memory_mib for _, share in self.users)
        self.used_cores = sum(share.cores for _, share in self.users)

    def share(self, want: Want, wish: GpuRequest, owner: Owner) -> Share | None:
        """What the card can give the container, None if not enough."""
        memory = want.memory_on(self)
        blocked = (
            len(self.users) >= self.most_users
            or (want.cores == ALL_CORES and self.users)
            or self.used_cores >= ALL_CORES
            or self.used_cores + want.cores > ALL_CORES
            or self._is_shared_badly(wish, owner)
        )
        if blocked:
            return None
        if self.mode != MIG:
            fits = self.used_mib + memory <= self.memory_mib
            return Share(self.uuid, memory, want.cores) if fits else None
        taken = [share.instance for _, share in self.users]
        instance = mig.smallest(self.layouts, taken, memory)
        if instance is None:
            return None
        return Share(self.uuid, instance.memory_mib, want.cores, instance.name)

    def _is_shared_badly(self, wish: GpuRequest, owner: Owner) -> bool:
        return any(
            other.uid != owner.uid
            and ((wish.apart and other.job == wish.apart) or wish.rules & other.rules)
            for other, _ in self.users
        )


Order = Callable[[Sequence[Card], Want], Iterable[Card]]
"""Cards that are allowed -> in which order they are tried. It may look at how they are by now."""
Worth = Callable[[Card, Share], float]
"""What giving the share is worth, asked once it is given."""


class Policy(NamedTuple):
    """How cards are chosen, and what a choice is worth to the node's score."""

    order: Order
    worth: Worth


def _last_first(cards: Sequence[Card], _: Want) -> Iterable[Card]:
    return sorted(cards, key=lambda card: -card.place)


def _first_first(cards: Sequence[Card], _: Want) -> Iterable[Card]:
    return sorted(cards, key=lambda card: card.place)


def _fullest_first(cards: Sequence[Card], _: Want) -> Iterable[Card]:
    return sorted(cards, key=lambda card: (-card.used_mib, card.place))


def _least_used_first(cards: Sequence[Card], _: Want) -> Iterable[Card]:
    return sorted(cards, key=lambda card: (len(card.users), card.place))


def _nothing(_: Card, __: Share) -> float:
    return 0.0


def _fullness(card: Card, _: Share) -> float:
    return 100 * card.used_mib / card.memory_mib if card.memory_mib else 0.0


def _idleness(card: Card, _: Share) -> float:
    return 100.0 if len(card.users) == 1 else 0.0


LOWEST = Policy(_first_first, _nothing)
"""The lowest number that has room."""
POLICIES: Mapping[str, Policy] = {
    "": Policy(_last_first, _nothing),
    "binpack": Policy(_fullest_first, _fullness),
    "spread": Policy(_least_used_first, _idleness),
}


def fit(
    cards: Sequence[Card], wish: GpuRequest, owner: Owner, policy: Policy
) -> tuple[Given, float] | None:
    """Give the pod what it wants and say what of, and what it is worth; None if it cannot have it.

    Containers come one after another and take, card by card in the policy's order, what fits; each
    takes cards that differ. ``cards`` are changed, also where the answer is None.
    """
    allowed = [card for card in cards if wish.allows(card)]
    given: list[tuple[Share, ...]] = []
    worth = 0.0
    for want in wish.containers:
        shares: list[Share] = []
        left = list(allowed)
        while len(shares) < want.number:
            for card in policy.order(left, want):
                share = card.share(want, wish, owner)
                if share is not None:
                    break
            else:
                return None
            card.put(owner, share)
            worth += policy.worth(card, share)
            shares.append(share)
            left.remove(card)
        given.append(tuple(shares))
    return tuple(given), worth


def copied(cards: Iterable[Card]) -> list[Card]:
    """The same to try on."""
    return [msgspec.structs.replace(card) for card in cards]
