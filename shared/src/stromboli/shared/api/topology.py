"""topology.volcano.sh/v1alpha1 HyperNode."""

from stromboli.shared.api.core import Condition, LabelSelector
from stromboli.shared.api.meta import Int64, Object, Part


class ExactMatch(Part, frozen=True, kw_only=True):
    """One member by name."""

    name: str = ""


class RegexMatch(Part, frozen=True, kw_only=True):
    """Nodes whose name contains a match of the pattern."""

    pattern: str = ""


class MemberSelector(Part, frozen=True, kw_only=True):
    """Selects members by exactly one of three ways."""

    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class Member(Part, frozen=True, kw_only=True):
    """Nodes, or HyperNodes of a lower tier. ``type`` is Node or HyperNode."""

    type: str = ""
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(Part, frozen=True, kw_only=True):
    """A topology domain. A lower tier is closer."""

    tier: Int64 = 0
    tier_name: str = ""
    members: tuple[Member, ...] = ()


class HyperNodeStatus(Part, frozen=True, kw_only=True):
    """``node_count``: the number of nodes in the HyperNode, including those of HyperNodes below it.
    ``conditions``: Ready or, if members are invalid, these members and the cause.
    """

    node_count: Int64 = 0
    conditions: tuple[Condition, ...] = ()


class HyperNode(Object, frozen=True, kw_only=True):
    """Nodes that are close to each other on the network; cluster scoped."""

    spec: HyperNodeSpec = HyperNodeSpec()
    status: HyperNodeStatus = HyperNodeStatus()
