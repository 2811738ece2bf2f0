"""Topology constraints of jobs: which topology domains their tasks may use.

A gang or a subgroup may name the highest tier that it may span. A ``hard`` constraint always holds,
in every action: after the first task is placed, further tasks are placed only on nodes of the
same domain of that tier or of a lower tier. A ``soft`` constraint prefers the lowest possible tier.
An invalid constraint is rejected with the reason, and never treated as absent.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stromboli.scheduler.core.framework import interfaces
from stromboli.scheduler.core.model import entities, topology_domains
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import network_topology
from stromboli.shared.api import batch

if TYPE_CHECKING:
    from stromboli.scheduler.core.framework import session

HARD, SOFT = "hard", "soft"
TOO_FAR = "node(s) are outside the network topology tier that the gang may span"
NOWHERE = "node(s) are in no topology domain of a tier that the gang allows"
OUTSIDE = "node(s) are outside the topology domain that was tried"
_PLACED = entities.ALLOCATED | {entities.Status.PIPELINED, entities.Status.UNKNOWN}
_NO_DOMAIN = -1


class TopologyRequest(NamedTuple):
    """The highest tier that tasks may span together."""

    highest: int
    is_hard: bool


class TopologyRequestError(ValueError):
    """A constraint that this cluster cannot satisfy; the message names valid values."""


def parse_request(
    network_topology_spec: batch.NetworkTopology | None, tree: topology_domains.TopologyTree
) -> TopologyRequest | None:
    """The requested constraint; None if there is none. Raises TopologyRequestError."""
    if network_topology_spec is None:
        return None
    mode = network_topology_spec.mode or HARD
    if mode == SOFT:
        return TopologyRequest(int(tree.tiers[topology_domains.ROOT_INDEX]), is_hard=False)
    if mode != HARD:
        raise TopologyRequestError(f"networkTopology mode {mode!r} is neither hard nor soft")
    try:
        return TopologyRequest(
            network_topology.highest_tier(network_topology_spec, tree.known_tiers), is_hard=True
        )
    except ValueError as error:
        raise TopologyRequestError(str(error)) from error


class TopologyConstraint:
    """Topology constraints in one session. Placements of a job are tracked from the first call for
    it.
    """

    def __init__(self, ssn: "session.Session") -> None:
        self._session = ssn
        self._constraints: dict[
            str, tuple[TopologyRequest | None, Mapping[str, TopologyRequest | None], str]
        ] = {}
        self._placed: dict[str, dict[str, Counter[int]]] = {}
        """Job -> subgroup, or empty for the whole job -> domain -> number of tasks."""
        self._masks: dict[tuple[str, int], extension_points.Mask] = {}
        self._confined = topology_domains.ROOT_INDEX
        self.most_evicted_in = 8
        """Maximum number of domains in which the gang actions search for room by evictions."""
        # Called before any plugin's handler; belongs to no plugin.
        ssn.allocate_events.append(self._put)
        ssn.deallocate_events.append(self._take)

    @property
    def tree(self) -> topology_domains.TopologyTree:
        """The topology tree of the session's nodes."""
        ssn = self._session
        return ssn.model.auxiliary.network(ssn.nodes)

    # Constraints ---------------------------------------------------------------------------------

    def problem(self, job: entities.Job) -> str:
        """Why the job's constraints are invalid; empty if they are valid."""
        return self._wished(job)[2]

    def is_constrained(self, job: entities.Job) -> bool:
        """Whether the job or one of its subgroups has a constraint."""
        spec = job.pod_group.spec
        return spec.network_topology is not None or any(
            each.network_topology is not None for each in spec.sub_group_policy
        )

    def has_hard_constraint(self, job: entities.Job) -> bool:
        """Whether the job or one of its subgroups has a hard constraint; an invalid constraint
        counts as hard."""
        whole, groups, problem = self._wished(job)
        return bool(problem) or any(
            each is not None and each.is_hard for each in (whole, *groups.values())
        )

    def request_of(
        self, job: entities.Job, subjob: entities.SubJob | None = None
    ) -> TopologyRequest | None:
        """The constraint of the whole job, or of one of its subgroups."""
        whole, groups, _ = self._wished(job)
        if subjob is None:
            return whole
        return groups.get(subjob.policy, whole)

    def _wished(
        self, job: entities.Job
    ) -> tuple[TopologyRequest | None, Mapping[str, TopologyRequest | None], str]:
        request = self._constraints.get(job.key)
        if request is None:
            request = self._constraints[job.key] = self._read(job)
        return request

    def _read(
        self, job: entities.Job
    ) -> tuple[TopologyRequest | None, Mapping[str, TopologyRequest | None], str]:
        spec = job.pod_group.spec
        if not self.is_constrained(job):
            return None, {each.name: None for each in spec.sub_group_policy}, ""
        try:
            whole = parse_request(spec.network_topology, self.tree)
            groups = {
                each.name: parse_request(each.network_topology, self.tree)
                for each in spec.sub_group_policy
            }
        except TopologyRequestError as error:
            return None, {}, str(error)
        return whole, groups, ""

    # Domains --------------------------------------------------------------------------------

    def current_domain(self, job: entities.Job, subjob: entities.SubJob | None = None) -> int:
        """The lowest domain that contains all placed tasks of the job or subgroup; -1 for none."""
        placed = self._followed(job).get(subjob.key if subjob else "")
        return self.tree.common(placed) if placed else _NO_DOMAIN

    def placed_in(self, job: entities.Job, domain: int) -> int:
        """Number of the job's tasks in a domain."""
        placed = self._followed(job).get("", Counter())
        return sum(count for home, count in placed.items() if self.tree.is_inside(home, domain))

    def candidate_domains(
        self, job: entities.Job, subjob: entities.SubJob | None, inside: int
    ) -> list[list[int]]:
        """Domains within ``inside`` to try for the job or subgroup, grouped by tier, the lowest
        first. If some tasks are placed, only the domains that contain them: one per tier.
        """
        requested = self.request_of(job, subjob)
        if requested is None or (subjob is not None and not job.sub_group_minimums):
            return [[inside]]
        if not requested.is_hard and not any(self._session.flat(interfaces.SOFT_TOPOLOGY)):
            return [[inside]]
        tree, home = self.tree, self.current_domain(job, subjob)
        if home != _NO_DOMAIN:
            if not tree.is_inside(home, inside):
                return [[inside]] if tree.is_inside(inside, home) else []
            return [
                [each]
                for each in tree.path_to_root(home)
                if tree.is_inside(each, inside) and tree.tiers[each] <= requested.highest
            ]
        groups: dict[int, list[int]] = {}
        for each in range(inside, int(tree.ends[inside])):
            tier = int(tree.tiers[each])
            if tier <= requested.highest and tree.counts[each]:
                groups.setdefault(tier, []).append(each)
        return [groups[tier] for tier in sorted(groups)]

    def largest_domains(self, job: entities.Job) -> list[int]:
        """The largest domains that may take the whole job."""
        requested = self.request_of(job)
        if requested is None or not requested.is_hard:
            return [topology_domains.ROOT_INDEX]
        tree, home = self.tree, self.current_domain(job)
        if home != _NO_DOMAIN:
            allowed = self._allowed(home, requested.highest)
            return [] if allowed == _NO_DOMAIN else [allowed]
        return [
            each
            for each in range(len(tree))
            if tree.counts[each]
            and tree.tiers[each] <= requested.highest
            and (
                each == topology_domains.ROOT_INDEX
                or tree.tiers[tree.parents[each]] > requested.highest
            )
        ]

    @contextlib.contextmanager
    def confined(self, domain: int) -> Iterator[None]:
        """Within this context, only nodes of this domain are feasible."""
        before, self._confined = self._confined, domain
        try:
            yield
        finally:
            self._confined = before

    def checks(self, task: entities.Task) -> Iterator[extension_points.Check]:
        """Checks that keep the task within its constraints, given where the other tasks are
        placed.
        """
        if self._confined != topology_domains.ROOT_INDEX:
            yield extension_points.Check(
                OUTSIDE, extension_points.Code.UNRESOLVABLE, self._inside(self._confined)
            )
        job = self._session.jobs.get(task.job)
        if job is None or not self.is_constrained(job):
            return
        if problem := self.problem(job):
            yield extension_points.Check(
                problem, extension_points.Code.UNRESOLVABLE, self._up_to(_NO_DOMAIN)
            )
        subjob = job.subjobs.get(task.subjob)
        whole, own = self.request_of(job), None
        if subjob is not None and subjob.policy:
            own = self.request_of(job, subjob)
        for requested, group in ((whole, None), (own, subjob)):
            if requested is not None and requested.is_hard:
                yield self._check(self.current_domain(job, group), requested.highest)

    def _check(self, home: int, highest: int) -> extension_points.Check:
        if home == _NO_DOMAIN:
            return extension_points.Check(
                NOWHERE, extension_points.Code.UNRESOLVABLE, self._up_to(highest)
            )
        allowed = self._allowed(home, highest)
        mask = self._up_to(_NO_DOMAIN) if allowed == _NO_DOMAIN else self._inside(allowed)
        return extension_points.Check(TOO_FAR, extension_points.Code.UNRESOLVABLE, mask)

    def _allowed(self, home: int, highest: int) -> int:
        """The highest domain that contains ``home`` up to the tier; -1 if ``home`` is above that
        tier."""
        tiers = self.tree.tiers
        allowed = [each for each in self.tree.path_to_root(home) if tiers[each] <= highest]
        return allowed[-1] if allowed else _NO_DOMAIN

    def _inside(self, domain: int) -> extension_points.Mask:
        mask = self._masks.get(("domain", domain))
        if mask is None:
            mask = self._masks["domain", domain] = self.tree.mask(domain)
        return mask

    def _up_to(self, tier: int) -> extension_points.Mask:
        mask = self._masks.get(("tier", tier))
        if mask is None:
            mask = self._masks["tier", tier] = self.tree.tiers[self.tree.homes] <= tier
        return mask

    # Placements -----------------------------------------------------------------------------

    def _followed(self, job: entities.Job) -> dict[str, Counter[int]]:
        placements = self._placed.get(job.key)
        if placements is None:
            placements = self._placed[job.key] = {}
            for status in _PLACED:
                for task in job.by_status.get(status, {}).values():
                    self._count(placements, task, 1)
        return placements

    def _put(self, tasks: Sequence[entities.Task]) -> None:
        self._follow(tasks, 1)

    def _take(self, tasks: Sequence[entities.Task]) -> None:
        self._follow(tasks, -1)

    def _follow(self, tasks: Sequence[entities.Task], change: int) -> None:
        placements = self._placed.get(tasks[0].job)
        if placements is not None:
            for task in tasks:
                self._count(placements, task, change)

    def _count(self, placements: dict[str, Counter[int]], task: entities.Task, change: int) -> None:
        row = self._session.nodes.rows.get(task.node)
        if row is None:
            return
        home = int(self.tree.homes[row])
        for key in ("", task.subjob):
            counts = placements.setdefault(key, Counter())
            counts[home] += change
            if not counts[home]:
                del counts[home]
