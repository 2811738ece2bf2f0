"""The sources of HyperNodes in the operator's configuration file.

The format is Volcano's: ``networkTopologyDiscovery`` with a list of sources, here ``label`` and
``file``. The source ``file`` reads switches in the format of Slurm's ``topology.conf``, which sites
and their tools can often provide: ``SwitchName=leaf1 Nodes=n[1-16]`` and ``SwitchName=spine
Switches=leaf[1-4]``. All functions here are pure; their inputs are texts and labels.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from stromboli.shared import decoding, network_topology
from stromboli.shared.api import topology

HOSTNAME = "kubernetes.io/hostname"
"""As the last label of a list, it means the nodes themselves."""
LONGEST_TYPE = 20
MOST_NAMES = 1_000_000
"""Maximum number of names that one pattern expands to; more indicates a typo."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_PART = re.compile(r"([^\[\],]|\[[^\]]*\])+")
_RANGE = re.compile(r"\[([^\]]*)\]")


class DesiredHyperNode(NamedTuple):
    """A desired HyperNode. ``kind``: the kind of its members, Node or HyperNode."""

    name: str
    tier: int
    tier_name: str
    kind: str
    members: tuple[str, ...]

    def spec(self) -> topology.HyperNodeSpec:
        """The spec of the object."""
        return topology.HyperNodeSpec(
            tier=self.tier,
            tier_name=self.tier_name,
            members=tuple(
                topology.Member(
                    type=self.kind,
                    selector=topology.MemberSelector(exact_match=topology.ExactMatch(name=name)),
                )
                for name in self.members
            ),
        )


class Source(Protocol):
    """A source of HyperNodes."""

    def wanted(self, nodes: Mapping[str, network_topology.Labels]) -> list[DesiredHyperNode]:
        """All HyperNodes that the source requires, for nodes with these labels."""


class LabelSource(msgspec.Struct, frozen=True):
    """HyperNodes from labels of nodes, one for each value of a label. ``types``: name -> labels,
    from the top tier down."""

    types: Mapping[str, tuple[str, ...]]

    def wanted(self, nodes: Mapping[str, network_topology.Labels]) -> list[DesiredHyperNode]:
        """The HyperNodes by tier; the lowest label is tier 1. A value is scoped by the value above
        it: rack 1 of one hall is not rack 1 of another. The path of a node ends at the first label
        that it lacks.
        """
        hyper_nodes: list[DesiredHyperNode] = []
        for kind, labels in sorted(self.types.items()):
            below: dict[tuple[int, tuple[str, ...]], set[str]] = {}
            for node, own in nodes.items():
                ways = list(_ways([own.get(label) for label in reversed(labels)]))
                for tier, way in enumerate(ways, start=1):
                    lower = node if tier == 1 else _label_name(kind, tier - 1, ways[tier - 2])
                    below.setdefault((tier, way), set()).add(lower)
            for (tier, way), members in sorted(below.items()):
                hyper_nodes.append(
                    DesiredHyperNode(
                        _label_name(kind, tier, way),
                        tier,
                        labels[-tier],
                        "Node" if tier == 1 else "HyperNode",
                        tuple(sorted(members)),
                    )
                )
        return hyper_nodes


def _ways(values: Sequence[str | None]) -> Iterator[tuple[str, ...]]:
    """The path of values from the top label down to each label; the path to the lowest label is
    first."""
    known = []
    for value in values:
        if not value:
            break
        known.append(value)
    for tier in range(1, len(known) + 1):
        yield tuple(reversed(known[tier - 1 :]))


def _label_name(kind: str, tier: int, way: tuple[str, ...]) -> str:
    digest = hashlib.sha256("\0".join(way).encode()).hexdigest()[:5]
    return f"hypernode-{kind}-tier{tier}-{_legible(way[-1])}-{digest}"


def _legible(text: str) -> str:
    """The text, shortened and reduced to characters that are valid in an object's name."""
    return re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip(".-")[:63].rstrip(".-") or "x"


class SwitchSource(msgspec.Struct, frozen=True):
    """HyperNodes from switches. ``switches``: name -> (kind of its members, members)."""

    switches: Mapping[str, tuple[str, tuple[str, ...]]]

    def wanted(self, nodes: Mapping[str, network_topology.Labels]) -> list[DesiredHyperNode]:
        """The HyperNodes by tier: a switch with nodes is in tier 1, a switch with switches one tier
        above them."""
        return [
            DesiredHyperNode(name, tier, "", *self.switches[name])
            for name, tier in sorted(_tiers(self.switches).items(), key=lambda it: (it[1], it[0]))
        ]


def _tiers(switches: Mapping[str, tuple[str, tuple[str, ...]]]) -> dict[str, int]:
    """The tier of each switch. Raises ValueError for switches that contain each other."""
    tiers: dict[str, int] = {}
    left = dict(switches)
    while left:
        ready = {
            name: 1 + max((tiers[each] for each in members if kind == "HyperNode"), default=0)
            for name, (kind, members) in left.items()
            if kind == "Node" or all(each in tiers for each in members)
        }
        if not ready:
            raise ValueError(f"switches contain each other in a cycle: {', '.join(sorted(left))}")
        tiers |= ready
        left = {name: own for name, own in left.items() if name not in ready}
    return tiers


def switches(text: str) -> SwitchSource:
    """The switches of a ``topology.conf``. Raises ValueError with the line and the error."""
    definitions: dict[str, tuple[str, tuple[str, ...]]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words:
            try:
                name, own = _switch(words)
                if name in definitions:
                    raise ValueError(f"switch {name} is defined twice")
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
            definitions[name] = own
    if not definitions:
        raise ValueError(
            "the file has no switch; write lines such as SwitchName=leaf1 Nodes=n[1-16]"
        )
    for name, (kind, members) in definitions.items():
        absent = sorted(set(members) - set(definitions)) if kind == "HyperNode" else ()
        if absent:
            raise ValueError(
                f"switch {name} contains {absent[0]}, which is not a switch in the file"
            )
    _tiers(definitions)
    return SwitchSource(definitions)


def _switch(words: Sequence[str]) -> tuple[str, tuple[str, tuple[str, ...]]]:
    parameters: dict[str, str] = {}
    for word in words:
        key, is_there, value = word.partition("=")
        if not is_there or key.lower() in parameters:
            raise ValueError(f"{word!r}: write SwitchName=, Nodes= or Switches=, each at most once")
        parameters[key.lower()] = value
    parameters.pop("linkspeed", None)  # carries no topology
    name = parameters.pop("switchname", "") or parameters.pop("blockname", "")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid name of a HyperNode: use a-z, 0-9, - and .")
    if set(parameters) == {"nodes"}:
        return name, ("Node", tuple(sorted(set(expanded(parameters["nodes"])))))
    if set(parameters) == {"switches"}:
        return name, ("HyperNode", tuple(sorted(set(expanded(parameters["switches"])))))
    raise ValueError(
        f"switch {name} has {', '.join(parameters) or 'nothing'}; expected Nodes= or Switches="
    )


def expanded(text: str) -> list[str]:
    """The names of a list such as ``n[1-3,07],m1``. Raises ValueError."""
    parts = [part[0] for part in _PART.finditer(text)]
    if not parts or ",".join(parts) != text:
        raise ValueError(f"{text!r} is not a list of names such as n[1-16],m1")
    return [name for part in parts for name in _named(part)]


def _named(part: str) -> list[str]:
    names, at = [""], 0
    for some in _RANGE.finditer(part):
        between, numbers = part[at : some.start()], _numbers(some[1])
        if len(names) * len(numbers) > MOST_NAMES:
            raise ValueError(f"{part!r} expands to more than {MOST_NAMES} names")
        names = [name + between + number for name in names for number in numbers]
        at = some.end()
    return [name + part[at:] for name in names]


def _numbers(text: str) -> list[str]:
    padded_numbers: list[str] = []
    for part in text.split(","):
        first, is_range, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not is_range)):
            raise ValueError(f"[{text}] is not a list of numbers such as [1-3,07]")
        low, high = int(first), int(last or first)
        if not low <= high < low + MOST_NAMES:
            raise ValueError(f"[{text}]: {part} is not an ascending range of at most {MOST_NAMES}")
        padded_numbers += [str(number).zfill(len(first)) for number in range(low, high + 1)]
    return padded_numbers


# The operator's file


class SourceEntry(msgspec.Struct, frozen=True):
    """A source in the file. ``config`` is specific to the source."""

    source: str
    enabled: bool = False
    config: dict[str, Any] = {}


class _NodeLabel(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    node_label: str


def labels(config: Mapping[str, Any]) -> LabelSource:
    """The label source's ``config``. Raises ValueError."""
    unknown = sorted(set(config) - {"networkTopologyTypes"})
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a setting of the source label")
    try:
        node_labels = decoding.convert(
            config.get("networkTopologyTypes", {}), dict[str, tuple[_NodeLabel, ...]]
        )
    except msgspec.ValidationError as error:
        raise ValueError(f"networkTopologyTypes: {error}") from None
    types: dict[str, tuple[str, ...]] = {}
    for name, listed in node_labels.items():
        if not _NAME.fullmatch(name) or len(name) > LONGEST_TYPE:
            raise ValueError(
                f"networkTopologyTypes: {name!r} must be at most {LONGEST_TYPE} "
                "characters of a-z, 0-9, - and ."
            )
        own = tuple(each.node_label for each in listed)
        own = own[:-1] if own[-1:] == (HOSTNAME,) else own
        if not own or HOSTNAME in own:
            raise ValueError(
                f"networkTopologyTypes: {name} needs labels from the top tier down, "
                f"and only the last may be {HOSTNAME}"
            )
        types[name] = own
    if not types:
        raise ValueError("networkTopologyTypes has no type")
    return LabelSource(types)
