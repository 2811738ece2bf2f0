"""Checks gang atomicity over time, from the history of an API server and the log of decisions.

Like ``invariants``, it shares no code with the system. Two rules are checked at each event of a
history:

* **Covered**: the decision that bound a running member covers, together with members that were
  bound before, the job's ``minAvailable``. A gang whose first pod runs without the others violates
  this rule immediately, even if the gang is complete in the end.
* **Complete in time**: a decision may be executed only in part, after a kill or a rejected bind.
  Within ``WITHIN_S`` the gang is complete, or none of its members runs or is being created.

Both rules hold for each version of a job separately, because a restart begins a new gang, and only
until the gang was complete for the first time: later a policy may restart a part of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stromboli.testkit.checkers import invariants

Event = dict[str, Any]
Object = dict[str, Any]
Gang = tuple[str, str]
"""Uid of a job, and the job version in the annotations of its pods."""

WITHIN_S = 30.0
"""Longer than the restart of a killed service takes on a busy machine."""
DECISION = "stromboli.sh/decision"


class GangAtomicityChecker:
    """The state of all gangs after each event. ``decisions``: id -> the pods that the decision
    binds, in the order of the log: by uid, or by ``namespace/name`` if the pod is created with its
    node."""

    def __init__(self, decisions: Mapping[str, Iterable[str]]) -> None:
        self._decided = {name: frozenset(uids) for name, uids in decisions.items()}
        self._position = {name: at for at, name in enumerate(self._decided)}
        self._first: dict[str, int] = {}
        for at, uids in enumerate(self._decided.values()):
            for uid in uids:
                self._first.setdefault(uid, at)
        self._needed: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._bound: dict[Gang, set[str]] = defaultdict(set)
        self._alive: dict[Gang, set[str]] = defaultdict(set)
        self._partial_since: dict[Gang, float] = {}
        self._said: set[str] = set()

    def take(self, event: Event) -> Iterator[str]:
        """Apply one event, where ``at`` is in seconds, and return the violations up to then."""
        yield from self._late(event["at"])
        thing = event["object"]
        if thing["kind"] == "Job":
            uid = thing["metadata"]["uid"]
            self._needed[uid] = thing["spec"].get("minAvailable", 0)
            self._names[uid] = thing["metadata"]["name"]
        elif thing["kind"] == "Pod" and (job := invariants.job_of(thing)):
            gang = job, invariants.mark(thing, invariants.VERSION)
            yield from self._take_pod(gang, thing, event)

    def end(self, at: float) -> Iterator[str]:
        """Return the violations at the end of the history."""
        yield from self._late(at)

    def _take_pod(self, gang: Gang, pod: Object, event: Event) -> Iterator[str]:
        uid = pod["metadata"]["uid"]
        self._keys[uid] = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        is_bound = bool(pod["spec"].get("nodeName"))
        is_live = event["type"] != "DELETED" and any(invariants.live_pods([pod]))
        if is_bound:
            self._bound[gang].add(uid)
        if is_bound and is_live:
            self._alive[gang].add(uid)
        else:
            self._alive[gang].discard(uid)
        if is_live and pod.get("status", {}).get("phase") == "Running":
            yield from self._uncovered(gang, pod)
        needed = self._needed.get(gang[0], 0)
        is_partial = bool(self._alive[gang]) and len(self._bound[gang]) < needed
        if is_partial:
            self._partial_since.setdefault(gang, event["at"])
        else:
            self._partial_since.pop(gang, None)

    def _uncovered(self, gang: Gang, pod: Object) -> Iterator[str]:
        needed, name = self._needed.get(gang[0], 0), pod["metadata"]["name"]
        decision = invariants.mark(pod, DECISION)
        if not decision:
            yield from self._say(f"pod {name} runs and was bound by no decision")
        at = self._position.get(decision)
        if at is None:
            return  # the decision has not been read from the log yet
        before = {uid for uid in self._bound[gang] if self._decided_at(uid, at) < at}
        together = len(before | self._decided[decision])
        if together < needed:
            yield from self._say(f"pod {name} runs by a decision for {together} of {needed} pods")

    def _decided_at(self, uid: str, at: int) -> int:
        """The position of the first decision about the pod; ``at`` if there is none."""
        return self._first.get(uid, self._first.get(self._keys[uid], at))

    def _late(self, now: float) -> Iterator[str]:
        for gang, since in self._partial_since.items():
            if now - since > WITHIN_S:
                bound, needed = len(self._bound[gang]), self._needed.get(gang[0], 0)
                name = self._names.get(gang[0], gang[0])
                yield from self._say(
                    f"job {name} has had {bound} of {needed} pods for more than {WITHIN_S:g} s"
                )

    def _say(self, line: str) -> Iterator[str]:
        if line not in self._said:
            self._said.add(line)
            yield line


def violations(history: Iterable[Event], decisions: Mapping[str, Iterable[str]]) -> list[str]:
    """All violations of gang atomicity in order; empty if there are none."""
    gangs, found, last = GangAtomicityChecker(decisions), list[str](), 0.0
    for event in history:
        last = max(last, event["at"])
        found += gangs.take(event)
    return [*found, *gangs.end(last)]
