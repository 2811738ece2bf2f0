"""An index of pods by their PodGroup and by the state that the PodGroup's status depends on.

Updated incrementally: a pod costs O(1), a read O(distinct states), of which a gang has few, however
many pods it has.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from stromboli.controller.core import manifests
from stromboli.shared.api import core


class MemberState(msgspec.Struct, frozen=True, gc=False):
    """The state of a member for the PodGroup's status. ``condition``: status, reason and message of
    its ``PodScheduled`` condition.
    """

    version: int
    is_going: bool
    phase: str
    has_node: bool
    is_gated: bool
    scheduler_name: str
    condition: tuple[str, str, str] | None


class GroupMembers:
    """PodGroup -> its pods, counted by state."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[MemberState, set[str]]] = {}
        self._pods: dict[str, tuple[str, MemberState]] = {}

    def groups(self) -> Collection[str]:
        """Keys of PodGroups that have members."""
        return self._groups.keys()

    def member_states(self, group: str) -> Mapping[MemberState, Collection[str]]:
        """State -> keys of the members in that state."""
        return self._groups.get(group, {})

    def of(self, group: str) -> Iterator[str]:
        """Keys of the members."""
        for keys in self._groups.get(group, {}).values():
            yield from keys

    def put(self, key: str, group: str, member_state: MemberState) -> None:
        """Add a pod, or update its state."""
        self.remove(key)
        self._pods[key] = group, member_state
        self._groups.setdefault(group, {}).setdefault(member_state, set()).add(key)

    def remove(self, key: str) -> None:
        """Remove a pod that is gone or unreadable."""
        group, member_state = self._pods.pop(key, ("", None))
        if member_state is None:
            return
        member_states = self._groups[group]
        member_states[member_state].discard(key)
        if not member_states[member_state]:
            del member_states[member_state]
            if not member_states:
                del self._groups[group]


def member_state_of(pod: core.Pod, *, is_going: bool) -> MemberState:
    """The state of a pod."""
    found = next((it for it in pod.status.conditions if it.type == "PodScheduled"), None)
    return MemberState(
        version=manifests.version_of(pod),
        is_going=is_going,
        phase=pod.status.phase,
        has_node=bool(pod.spec.node_name),
        is_gated=bool(pod.spec.scheduling_gates),
        scheduler_name=pod.spec.scheduler_name,
        condition=None if found is None else (found.status, found.reason, found.message),
    )
