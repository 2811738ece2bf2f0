"""Validation of network topology: the requirements of gangs, and HyperNodes."""

from collections.abc import Iterator

from stromboli.shared import network_topology
from stromboli.shared.api.batch import NetworkTopology
from stromboli.shared.api.topology import HyperNode
from stromboli.shared.formats import patterns
from stromboli.shared.messages.admission import Violation

HARD = "hard"


def violations(wanted: NetworkTopology | None, path: str) -> Iterator[Violation]:
    """Violations of the tier of a networkTopology: it must be given by number or by name, not
    both."""
    if wanted is None:
        return
    has_number = wanted.highest_tier_allowed is not None
    if has_number and wanted.highest_tier_name:
        yield Violation(
            path=path,
            reason="both highestTierAllowed and highestTierName",
            expected="one of the two",
        )
    elif wanted.mode in ("", HARD) and not has_number and not wanted.highest_tier_name:
        yield Violation(
            path=path, reason=network_topology.NO_TIER, expected="one of the two, or mode soft"
        )


def unsatisfiable(
    wanted: NetworkTopology | None, path: str, tiers: network_topology.Tiers | None
) -> Iterator[Violation]:
    """The violation by a hard constraint that the cluster's HyperNodes cannot satisfy. ``tiers``:
    None if unknown.
    """
    if wanted is None or tiers is None or wanted.mode not in ("", HARD):
        return
    if any(violations(wanted, path)):
        return  # reported by ``violations``
    try:
        network_topology.highest_tier(wanted, tiers)
    except ValueError as error:
        yield Violation(path=path, reason=str(error), expected=_expected(tiers))


def _expected(tiers: network_topology.Tiers) -> str:
    if tiers.lowest is None:
        return "create HyperNodes that describe the network topology, or use mode soft"
    named = f" or a highestTierName of {', '.join(sorted(tiers.names))}" if tiers.names else ""
    return f"highestTierAllowed of {tiers.lowest} or more{named}"


def of_hyper_node(hyper_node: HyperNode) -> Iterator[Violation]:
    """All violations of a HyperNode beyond its schema."""
    if not hyper_node.spec.members:
        yield Violation(
            path="spec.members", reason="has no members", expected="at least one member"
        )
    for index, member in enumerate(hyper_node.spec.members):
        matched = member.selector.regex_match
        if matched is None:
            continue
        path = f"spec.members[{index}].selector.regexMatch.pattern"
        try:
            patterns.compile_pattern(matched.pattern)
        except ValueError as error:
            yield Violation(
                path=path,
                reason=str(error),
                expected="a regular expression in the syntax of Go (RE2) such as ^rack-1-.*",
            )
