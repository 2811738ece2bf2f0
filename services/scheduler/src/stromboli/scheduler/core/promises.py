"""What gangs inside their queues may still take, beyond what nodes count as taken.

Follows ``inqueueRest`` of spec/plugins 0. A gang's own placed tasks are deducted while it is
Inqueue as well, where Volcano's overcommit counts them twice until its phase has caught up.
"""

from stromboli.scheduler.core import gangs, shapes
from stromboli.shared import units
from stromboli.shared.api import scheduling

_PROMISED_IN = ("", "Pending", "Inqueue")


class Promises:
    """Sum over gangs, kept as gangs change: O(resources) a change."""

    def __init__(self) -> None:
        self.total: units.Amounts = {}
        self._of: dict[str, units.Amounts] = {}

    def put(self, key: str, amounts: units.Amounts) -> bool:
        """The gang of this key may still take so much. Whether that is less than before."""
        before = self._of.pop(key, {})
        if amounts:
            self._of[key] = amounts
        self.total = units.add(units.add(self.total, amounts), units.times(-1, before))
        return any(amounts.get(name, 0) < amount for name, amount in before.items())


def wanted(group: scheduling.PodGroup) -> units.Amounts:
    """What the gang wants at least. Raises ValueError for a bad quantity."""
    return shapes.checked(group.spec.min_resources or {}, "minResources")


def outstanding(gang: gangs.Gang, group: scheduling.PodGroup) -> units.Amounts:
    """What a gang inside its queue may still take. Gated pods take nothing until they may."""
    if not group.spec.min_resources:
        return {}
    phase = group.status.phase
    if phase == "Running":
        if gang.count(gangs.ALLOCATED) < group.spec.min_member:
            return {}
    elif phase not in _PROMISED_IN:
        return {}
    try:
        amounts = wanted(group)
    except ValueError:
        return {}
    rest = {
        name: max(amount - gang.taken.get(name, 0) - gang.gated.get(name, 0), 0)
        for name, amount in amounts.items()
    }
    return {name: amount for name, amount in rest.items() if amount}
