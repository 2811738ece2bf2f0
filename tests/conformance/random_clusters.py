"""Random small clusters, Volcano's decisions about each, and the differences of an outcome.

A *difference* is a fact of one gang: the number of pods of a role that were bound, evicted or
nominated, or the phase of its PodGroup. Volcano chooses randomly among equal pods and nodes, so
names and nodes are not compared, and the phases Unknown and Inqueue count as one.
"""

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stromboli.scheduler.core import simulate
from stromboli.scheduler.core.model import requirements
from stromboli.shared import decoding, keys
from stromboli.shared.api import core, scheduling
from stromboli.shared.formats import units

BINDS, EVICTIONS, PHASE, NOMINATIONS = "binds", "evictions", "phase", "nominations"
FIELDS = (BINDS, EVICTIONS, PHASE, NOMINATIONS)
Roles = Counter[str]


class Difference(NamedTuple):
    """``field`` of a gang differs; an empty gang is that of pods without one."""

    field: str
    gang: str


class Outcome(msgspec.Struct, rename="camel"):
    """What a session decided. Keys are ``namespace/name``."""

    binds: dict[str, str] | None = None
    evictions: list[str] | None = None
    pipelined: dict[str, dict[str, str]] | None = None
    pod_group_phases: dict[str, str] | None = None

    @property
    def bound(self) -> Mapping[str, str]:
        """Pod -> node."""
        return self.binds or {}

    @property
    def evicted(self) -> frozenset[str]:
        """Pods."""
        return frozenset(self.evictions or ())

    @property
    def nominated(self) -> Mapping[str, str]:
        """Pod -> node."""
        gangs = (self.pipelined or {}).values()
        return {pod: node for nominated in gangs for pod, node in nominated.items()}


class Pod(NamedTuple):
    """A pod of a case. ``is_held``: it has a place and has not ended. ``is_bound``: it has a place
    and does not run yet. ``shuns``: no other pod of its gang may be on its node."""

    key: str
    gang: str
    role: str
    node: str
    is_held: bool
    is_bound: bool
    is_terminating: bool
    is_best_effort: bool
    has_succeeded: bool
    anti_affinity: bool
    request: units.Amounts


class Gang(NamedTuple):
    """A PodGroup. ``roles``: minimums that bind."""

    key: str
    least: int
    roles: Mapping[str, int]
    queue: str
    priority: int


class _Document(msgspec.Struct):
    name: str
    now: str
    kind: str
    config: dict[str, Any]
    objects: list[dict[str, Any]]
    outcomes: list[Outcome]


class Case:
    """A cluster with a configuration, and what Volcano decided in some runs."""

    def __init__(self, line: bytes) -> None:
        document = decoding.from_json(line, _Document)
        self.name, self.kind, self.outcomes = document.name, document.kind, document.outcomes
        self.document = msgspec.json.encode(
            {key: getattr(document, key) for key in ("name", "now", "config", "objects")}
        )
        self.actions = [each.strip() for each in document.config["actions"].split(",")]
        self._config = document.config
        by_kind: dict[str, list[dict[str, Any]]] = {}
        for each in document.objects:
            by_kind.setdefault(each["kind"], []).append(each)
        priorities = {
            each["metadata"]["name"]: int(each["value"]) for each in by_kind["PriorityClass"]
        }
        self.nodes = {
            each["metadata"]["name"]: units.amounts(each["status"]["allocatable"])
            for each in by_kind["Node"]
        }
        found = [_gang(each, priorities) for each in by_kind["PodGroup"]]
        self.gangs = {gang.key: gang for gang in found}
        pods = [_pod(each) for each in by_kind["Pod"]]
        self.pods = {pod.key: pod for pod in pods}

    def plugin(self, name: str) -> Mapping[str, Any] | None:
        """The plugin's options, None if it is not configured."""
        tiers = self._config["tiers"]
        plugins = (each for tier in tiers for each in tier["plugins"])
        return next((each for each in plugins if each["name"] == name), None)

    def decide(self) -> Outcome:
        """What our scheduler decides."""
        decided = simulate.simulate(self.document)
        return decoding.convert(msgspec.to_builtins(decided), Outcome)

    def roles(self, pods: Iterable[str], gang: str) -> Roles:
        """How many of the pods are of which role of the gang."""
        found = (self.pods[pod] for pod in pods)
        return Counter(pod.role for pod in found if pod.gang == gang)

    def members(self, gang: str) -> Iterator[Pod]:
        """The gang's pods."""
        return (pod for pod in self.pods.values() if pod.gang == gang)

    def of_gang(self, pods: Iterable[str], gang: str) -> list[str]:
        """Those of the pods that are the gang's."""
        return [pod for pod in pods if self.pods[pod].gang == gang]


def read(path: Path) -> list[Case]:
    """All cases of a file. Raises OSError and msgspec.DecodeError for what cannot be read."""
    with gzip.open(path) as lines:
        return [Case(line) for line in lines]


def differences(case: Case, ours: Outcome, theirs: Outcome) -> set[Difference]:
    """The facts in which two outcomes of a case differ."""
    gangs = ["", *case.gangs]
    pairs = [
        (BINDS, ours.bound, theirs.bound),
        (EVICTIONS, ours.evicted, theirs.evicted),
        (NOMINATIONS, ours.nominated, theirs.nominated),
    ]
    found = {
        Difference(field, gang)
        for field, left, right in pairs
        for gang in gangs
        if case.roles(left, gang) != case.roles(right, gang)
    }
    for gang in case.gangs.values():
        if gang.least > 0 and _phase(ours, gang.key) != _phase(theirs, gang.key):
            found.add(Difference(PHASE, gang.key))
    return found


def _phase(outcome: Outcome, gang: str) -> str:
    phase = (outcome.pod_group_phases or {}).get(gang, "")
    return "Inqueue" if phase == "Unknown" else phase


def _key(found: Mapping[str, Any]) -> str:
    metadata = found["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _gang(found: Mapping[str, Any], priorities: Mapping[str, int]) -> Gang:
    spec = decoding.convert(found["spec"], scheduling.PodGroupSpec)
    roles = spec.min_task_member or {}
    return Gang(
        _key(found),
        spec.min_member,
        roles if spec.min_member >= sum(roles.values()) else {},
        spec.queue,
        priorities.get(spec.priority_class_name, 0),
    )


def _pod(found: Mapping[str, Any]) -> Pod:
    pod = decoding.convert(found, core.Pod)
    group = pod.metadata.annotation(keys.GROUP_NAME)
    shape = requirements.pod_request(pod.spec)
    return Pod(
        pod.metadata.key,
        f"{pod.metadata.namespace}/{group}" if group else "",
        pod.metadata.name.rpartition("-")[0],
        pod.spec.node_name,
        bool(pod.spec.node_name) and pod.status.phase not in ("Succeeded", "Failed"),
        bool(pod.spec.node_name) and pod.status.phase == "Pending",
        pod.metadata.deletion_timestamp is not None,
        not any(value for name, value in shape.items() if name != "pods"),
        pod.status.phase == "Succeeded",
        _shuns_its_kind(pod),
        shape,
    )


def _shuns_its_kind(pod: core.Pod) -> bool:
    """A required anti-affinity by node that the pod itself matches."""
    affinity = pod.spec.affinity
    anti = affinity.pod_anti_affinity if affinity else None
    terms = anti.required_during_scheduling_ignored_during_execution if anti else ()
    labels = pod.metadata.labels or {}
    return any(
        term.topology_key == "kubernetes.io/hostname"
        and term.label_selector is not None
        and (term.label_selector.match_labels or {}).items() <= labels.items()
        for term in terms or ()
    )
