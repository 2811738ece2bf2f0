"""What is wrong with topology: a gang's wishes, and HyperNodes.

Behaviour: admission reference 2.2, 5 and 8.
"""

import re
from collections.abc import Iterator

from stromboli.shared.api.batch import NetworkTopology
from stromboli.shared.api.topology import HyperNode
from stromboli.shared.messages.admission import Violation


def violations(wanted: NetworkTopology | None, path: str) -> Iterator[Violation]:
    """The tier is given by number or by name."""
    if wanted and wanted.highest_tier_allowed is not None and wanted.highest_tier_name:
        yield Violation(
            path=path,
            reason="both highestTierAllowed and highestTierName",
            expected="one of the two",
        )


def of_hyper_node(made: HyperNode) -> Iterator[Violation]:
    """Everything wrong with a HyperNode that its schema does not say."""
    if not made.spec.members:
        yield Violation(path="spec.members", reason="no member", expected="at least one member")
    for index, member in enumerate(made.spec.members):
        matched = member.selector.regex_match
        if matched is None:
            continue
        try:
            re.compile(matched.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            yield Violation(
                path=f"spec.members[{index}].selector.regexMatch.pattern",
                reason=f"{matched.pattern!r} is not a regular expression: {error}",
                expected="a pattern such as ^rack-1-.*",
            )
