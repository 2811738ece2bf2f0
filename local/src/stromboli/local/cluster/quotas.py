"""What namespaces may hold at most: pods beyond a ``ResourceQuota`` are refused as they are made.

A quota counts the pods of its namespace that its scopes match and that have not ended. The ledger
hears of every change as it is decided, so that pods made at the same time never pass a quota
together; what stands in a quota's status follows. Only pods are counted: a quota of anything else
is refused rather than not kept.
Source: ``plugin/pkg/admission/resourcequota`` and ``pkg/quota/v1/evaluator/core/pods.go`` of
Kubernetes 1.34, whose words the refusals have.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from stromboli.local.cluster.state import Event
from stromboli.shared import quota, units
from stromboli.shared.api import core, kinds
from stromboli.shared.api.meta import Part

Document = dict[str, Any]

_MUST_BE_SAID = ("cpu", "memory")
"""What every container has to ask for where a quota limits it."""
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_BY_PRIORITY = "PriorityClass"


class Requirement(Part, frozen=True, kw_only=True):
    """Which pods are counted: those of a scope, or of priority classes."""

    scope_name: str
    operator: str
    values: tuple[str, ...] = ()


class _Selector(Part, frozen=True, kw_only=True):
    match_expressions: tuple[Requirement, ...] = ()


class _Spec(Part, frozen=True, kw_only=True):
    hard: dict[str, core.Quantity] | None = None
    scopes: tuple[str, ...] = ()
    scope_selector: _Selector | None = None


class _Quota(Part, frozen=True, kw_only=True):
    spec: _Spec = _Spec()


class _Use(msgspec.Struct, frozen=True):
    """What a pod takes of quotas, and of which."""

    amounts: units.Amounts
    scopes: frozenset[str]
    priority_class: str


class _Account(msgspec.Struct):
    """A quota with what is used of what it names."""

    spec: _Spec
    hard: units.Amounts
    scopes: tuple[Requirement, ...]
    used: units.Amounts

    def book(self, use: _Use, sign: int) -> None:
        if all(_matches(each, use) for each in self.scopes):
            taken = {name: sign * value for name, value in use.amounts.items() if name in self.hard}
            self.used = units.add(self.used, taken)


class Ledger:
    """See the module. ``pods_of``: the pods of a namespace as the next change finds them."""

    def __init__(self, pods_of: Callable[[str], Iterable[bytes]]) -> None:
        self._pods_of = pods_of
        self._accounts: dict[str, dict[str, _Account]] = {}
        self._uses: dict[str, dict[str, _Use]] = {}

    def saw(self, event: Event) -> list[str]:
        """A change was decided. Answers the names of its namespace's quotas whose status it may
        have made untrue. Costs nothing in a namespace without quotas."""
        key = event.key
        if key.resource == kinds.RESOURCE_QUOTAS.plural:
            if event.type == "DELETED":
                self._close(key.namespace, key.name)
                return []
            self.open(key.namespace, key.name, event.stored.raw)
            return [key.name]
        if key.resource != kinds.PODS.plural or key.namespace not in self._uses:
            return []
        uses = self._uses[key.namespace]
        before = uses.pop(key.name, None)
        after = None if event.type == "DELETED" else _use_of(kinds.PODS.decode(event.stored.raw))
        if after is not None:
            uses[key.name] = after
        return [] if before == after else self._book(key.namespace, before, after)

    def open(self, namespace: str, name: str, raw: bytes) -> None:
        """Keep a quota that is there."""
        spec = msgspec.json.decode(raw, type=_Quota).spec
        accounts = self._accounts.setdefault(namespace, {})
        if name in accounts and accounts[name].spec == spec:
            return
        if namespace not in self._uses:
            pods = (kinds.PODS.decode(pod) for pod in self._pods_of(namespace))
            self._uses[namespace] = {pod.metadata.name: _use_of(pod) for pod in pods}
        hard = {each: quota.amount(each, value) for each, value in (spec.hard or {}).items()}
        account = _Account(spec, hard, tuple(_scopes(spec)), dict.fromkeys(hard, 0))
        for use in self._uses[namespace].values():
            account.book(use, 1)
        accounts[name] = account

    def status(self, namespace: str, name: str) -> Document | None:
        """What a quota's status should be; None if there is no such quota."""
        account = self._accounts.get(namespace, {}).get(name)
        if account is None:
            return None
        used = {each: quota.text(each, account.used[each]) for each in account.hard}
        return {"hard": account.spec.hard or {}, "used": used}

    def refusal(self, pod: Document) -> str | None:
        """Why a new pod may not be, in an API server's words."""
        metadata = pod["metadata"]
        accounts = self._accounts.get(metadata["namespace"], {})
        if not accounts:
            return None
        spec = msgspec.convert(pod["spec"], core.PodSpec)
        use = _use_of(core.Pod(spec=spec))
        for name, account in sorted(accounts.items()):
            if not all(_matches(each, use) for each in account.scopes):
                continue
            asked = {each: use.amounts.get(each, 0) for each in account.hard}
            unsaid = _unsaid(spec, account.hard)
            over = [
                each
                for each in sorted(asked)
                if each in use.amounts and account.used[each] + asked[each] > account.hard[each]
            ]
            if unsaid:
                reason = f"failed quota: {name}: must specify {unsaid}"
            elif over:
                reason = (
                    f"exceeded quota: {name}, requested: {_list(asked, over)}, "
                    f"used: {_list(account.used, over)}, limited: {_list(account.hard, over)}"
                )
            else:
                continue
            return f'pods "{metadata["name"]}" is forbidden: {reason}'
        return None

    def _close(self, namespace: str, name: str) -> None:
        accounts = self._accounts.get(namespace, {})
        accounts.pop(name, None)
        if not accounts:
            self._accounts.pop(namespace, None)
            self._uses.pop(namespace, None)

    def _book(self, namespace: str, before: _Use | None, after: _Use | None) -> list[str]:
        changed = []
        for name, account in self._accounts[namespace].items():
            was = account.used
            if before is not None:
                account.book(before, -1)
            if after is not None:
                account.book(after, 1)
            if account.used != was:
                changed.append(name)
        return changed


def faults(document: Document) -> Iterator[str]:
    """Why a quota whose types are right could not be kept."""
    try:
        spec = msgspec.convert(document.get("spec") or {}, _Spec)
    except msgspec.ValidationError as error:
        yield f"spec: {error}"
        return
    for name, quantity in (spec.hard or {}).items():
        try:
            if quota.amount(name, quantity) < 0:
                yield f"spec.hard[{name}]: {quantity!r} must be 0 or more"
        except ValueError as error:
            yield f"spec.hard[{name}]: {error}"
        if not _is_counted(name):
            yield (
                f"spec.hard[{name}]: is not counted here; pods, count/pods, cpu, memory, "
                "ephemeral-storage, hugepages-*, each also as requests.*, limits.cpu, "
                "limits.memory, limits.ephemeral-storage and requests.<domain>/<device> are"
            )
    for each in _scopes(spec):
        yield from _scope_faults(each)


def _scope_faults(scope: Requirement) -> Iterator[str]:
    where = f"spec.scopeSelector: {scope.scope_name!r}"
    if scope.scope_name not in _SCOPES and scope.scope_name != _BY_PRIORITY:
        yield f"{where} is no scope of pods, supported: {', '.join((*_SCOPES, _BY_PRIORITY))}"
    elif scope.operator not in _OPERATORS:
        yield f"{where}: operator {scope.operator!r}, supported: {', '.join(_OPERATORS)}"
    elif scope.scope_name in _SCOPES and scope.operator != "Exists":
        yield f"{where}: operator must be 'Exists', not {scope.operator!r}"
    elif scope.operator in ("In", "NotIn") and not scope.values:
        yield f"{where}: operator {scope.operator!r} needs values"
    elif scope.operator in ("Exists", "DoesNotExist") and scope.values:
        yield f"{where}: operator {scope.operator!r} takes no values"


def _is_counted(name: str) -> bool:
    resource = quota.resource(name)
    if name in ("pods", "count/pods") or resource in quota.LIMITED:
        return True
    if name.startswith("limits."):
        return False
    is_device = "/" in resource and name.startswith("requests.")
    return is_device or resource.startswith("hugepages-")


def _scopes(spec: _Spec) -> Iterator[Requirement]:
    """Both ways of naming scopes as one."""
    for scope in spec.scopes:
        yield Requirement(scope_name=scope, operator="Exists")
    if spec.scope_selector is not None:
        yield from spec.scope_selector.match_expressions


def _matches(scope: Requirement, use: _Use) -> bool:
    if scope.scope_name != _BY_PRIORITY:
        return scope.scope_name in use.scopes
    if scope.operator in ("In", "NotIn"):
        return (use.priority_class in scope.values) == (scope.operator == "In")
    return bool(use.priority_class) == (scope.operator == "Exists")


def _use_of(pod: core.Pod) -> _Use:
    """A pod that has ended takes nothing but its place among objects."""
    ended = pod.status.phase in ("Succeeded", "Failed")
    return _Use(
        {"count/pods": 1} if ended else quota.usage(pod.spec),
        frozenset(name for name, holds in _SCOPES.items() if holds(pod.spec)),
        pod.spec.priority_class_name,
    )


def _is_best_effort(spec: core.PodSpec) -> bool:
    """Nobody in it asks for processors or memory."""
    return not any(
        units.amount(name, value)
        for container in (*spec.containers, *spec.init_containers)
        for stated in (container.resources.requests, container.resources.limits)
        for name, value in (stated or {}).items()
        if name in _MUST_BE_SAID
    )


def _looks_into_other_namespaces(spec: core.PodSpec) -> bool:
    affinity = spec.affinity or core.Affinity()
    sides = [side for side in (affinity.pod_affinity, affinity.pod_anti_affinity) if side]
    terms = [
        term
        for side in sides
        for term in (
            *side.required_during_scheduling_ignored_during_execution,
            *(
                wish.pod_affinity_term
                for wish in side.preferred_during_scheduling_ignored_during_execution
            ),
        )
    ]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


_SCOPES: Mapping[str, Callable[[core.PodSpec], bool]] = {
    "Terminating": lambda spec: spec.active_deadline_seconds is not None,
    "NotTerminating": lambda spec: spec.active_deadline_seconds is None,
    "BestEffort": _is_best_effort,
    "NotBestEffort": lambda spec: not _is_best_effort(spec),
    "CrossNamespacePodAffinity": _looks_into_other_namespaces,
}


def _unsaid(spec: core.PodSpec, hard: Mapping[str, int]) -> str:
    """What containers have to ask for, as the quota limits it."""
    found = []
    for name in sorted(hard):
        if quota.resource(name) not in _MUST_BE_SAID:
            continue
        silent = {
            container.name
            for container in (*spec.containers, *spec.init_containers)
            if quota.resource(name) not in _said(container, limits=name.startswith("limits."))
        }
        if silent:
            found.append(f"{name} for: {','.join(sorted(silent))}")
    return "; ".join(found)


def _said(container: core.Container, *, limits: bool) -> set[str]:
    """A limit without a request is a request, too."""
    stated = container.resources
    return {*(stated.limits or {}), *(() if limits else stated.requests or {})}


def _list(amounts: Mapping[str, int], names: list[str]) -> str:
    return ",".join(f"{name}={quota.text(name, amounts[name])}" for name in names)
