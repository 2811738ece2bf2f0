"""An index of pods by their PodGroup and by the state that the PodGroup's status depends on.

Updated incrementally: a change of a pod costs O(1), a read O(distinct states). A gang has few
distinct states, however many pods it has.
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
    is_terminating: bool
    phase: str
    has_node: bool
    gates: tuple[str, ...]
    scheduler_name: str
    condition: tuple[str, str, str] | None


Members = Mapping[MemberState, Collection[str]]
"""State of members -> keys of the members in that state."""


class _Members(msgspec.Struct, frozen=True, eq=False):
    """The pods of a PodGroup that are in one state. They share one object to save memory: a cluster
    may have 100,000 pods."""

    group: str
    state: MemberState
    pods: set[str]


class GroupMembers:
    """The pods of each PodGroup, by state."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[MemberState, _Members]] = {}
        self._pods: dict[str, _Members] = {}

    def groups(self) -> Collection[str]:
        """Keys of PodGroups that have members."""
        return self._groups.keys()

    def member_states(self, group: str) -> Members:
        """State -> keys of the members in that state."""
        return {state: members.pods for state, members in self._groups.get(group, {}).items()}

    def of(self, group: str) -> Iterator[str]:
        """Keys of the members."""
        for members in self._groups.get(group, {}).values():
            yield from members.pods

    def put(self, key: str, group: str, member_state: MemberState) -> None:
        """Add a pod, or update its state."""
        before = self._pods.get(key)
        if before is not None and before.group == group and before.state == member_state:
            return
        self.remove(key)
        by_state = self._groups.setdefault(group, {})
        members = by_state.get(member_state)
        if members is None:
            members = by_state[member_state] = _Members(group, member_state, set())
        members.pods.add(key)
        self._pods[key] = members

    def remove(self, key: str) -> None:
        """Remove a pod that is gone or unreadable."""
        members = self._pods.pop(key, None)
        if members is None:
            return
        members.pods.discard(key)
        if not members.pods:
            by_state = self._groups[members.group]
            del by_state[members.state]
            if not by_state:
                del self._groups[members.group]


def member_state_of(pod: core.Pod, *, is_terminating: bool) -> MemberState:
    """The state of a pod as a member."""
    condition = next((it for it in pod.status.conditions if it.type == "PodScheduled"), None)
    return MemberState(
        version=manifests.version_of(pod),
        is_terminating=is_terminating,
        phase=pod.status.phase,
        has_node=bool(pod.spec.node_name),
        gates=tuple(gate.name for gate in pod.spec.scheduling_gates),
        scheduler_name=pod.spec.scheduler_name,
        condition=None
        if condition is None
        else (condition.status, condition.reason, condition.message),
    )
