"""Resource quotas: pods beyond a ``ResourceQuota`` are rejected at creation.

A quota counts the unfinished pods of its namespace that match its scopes. Usage is updated as
changes are decided, so pods created concurrently never exceed a quota together; the status of the
quota follows. Only pods are counted: a quota of other resources is rejected instead of ignored. An
unreadable object never allows anything: while a quota or a pod is unreadable, pods that could
exceed a quota of its namespace are rejected.
Source: ``plugin/pkg/admission/resourcequota`` and ``pkg/quota/v1/evaluator/core/pods.go`` of
Kubernetes 1.34, whose messages the rejections use.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from stromboli.embedded.cluster.state import Event
from stromboli.shared import decoding
from stromboli.shared.api import core, kinds
from stromboli.shared.api.meta import Part
from stromboli.shared.formats import units
from stromboli.shared.jobspec import quota, quota_scopes

Document = dict[str, Any]

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class _Quota(Part, frozen=True, kw_only=True):
    spec: core.ResourceQuotaSpec = core.ResourceQuotaSpec()


class _PodUsage(msgspec.Struct, frozen=True):
    """The amounts that a pod uses, and the traits by which scopes of quotas select it."""

    amounts: units.Amounts
    traits: quota_scopes.PodTraits


class _QuotaAccount(msgspec.Struct):
    """A quota with the usage of the resources it limits."""

    spec: core.ResourceQuotaSpec
    hard: units.Amounts
    scopes: tuple[core.ScopeRequirement, ...]
    used: units.Amounts

    def book(self, use: _PodUsage, sign: int) -> None:
        if quota_scopes.counts(self.scopes, use.traits):
            delta = {name: sign * value for name, value in use.amounts.items() if name in self.hard}
            self.used = units.add(self.used, delta)


class QuotaUsage:
    """Usage of all quotas. ``pods_of``: the pods of a namespace after all decided changes."""

    def __init__(self, pods_of: Callable[[str], Iterable[bytes]]) -> None:
        self._pods_of = pods_of
        self._accounts: dict[str, dict[str, _QuotaAccount]] = {}
        self._uses: dict[str, dict[str, _PodUsage]] = {}
        self._unread: dict[str, dict[tuple[str, str], str]] = {}
        """Namespace -> (resource, name) of an unreadable object -> the error."""

    def problems(self) -> Iterator[str]:
        """Yield the unreadable objects and their consequences."""
        for namespace in sorted(self._unread):
            if reason := self._closed(namespace):
                yield f"no pod is admitted to namespace {namespace}: {reason}"

    def apply(self, event: Event) -> list[str]:
        """Apply a decided change; return the names of the quotas whose status may have changed.
        O(1) in a namespace without quotas.
        """
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
        self._forgive(key.namespace, key.resource, key.name)
        after = None
        if event.type != "DELETED":
            after = self._read_pod(key.namespace, key.name, event.stored.raw)
        if after is not None:
            uses[key.name] = after
        return [] if before == after else self._book(key.namespace, before, after)

    def open(self, namespace: str, name: str, raw: bytes) -> None:
        """Add or replace a quota with its usage; an unreadable quota is recorded instead."""
        try:
            spec = decoding.from_json(raw, _Quota).spec
            hard = {each: quota.amount(each, value) for each, value in (spec.hard or {}).items()}
        except (ValueError, msgspec.DecodeError) as error:
            self._close(namespace, name)
            self._blame(namespace, kinds.RESOURCE_QUOTAS.plural, name, error)
            return
        self._forgive(namespace, kinds.RESOURCE_QUOTAS.plural, name)
        accounts = self._accounts.setdefault(namespace, {})
        if name in accounts and accounts[name].spec == spec:
            return
        if namespace not in self._uses:
            uses = self._uses[namespace] = {}
            for pod in self._pods_of(namespace):
                called = kinds.metadata_of(pod).name
                if (use := self._read_pod(namespace, called, pod)) is not None:
                    uses[called] = use
        account = _QuotaAccount(spec, hard, tuple(quota_scopes.of(spec)), dict.fromkeys(hard, 0))
        for use in self._uses[namespace].values():
            account.book(use, 1)
        accounts[name] = account

    def status(self, namespace: str, name: str) -> Document | None:
        """Return the current status of a quota; None if there is no such quota."""
        account = self._accounts.get(namespace, {}).get(name)
        if account is None:
            return None
        used = {each: quota.text(each, account.used[each]) for each in account.hard}
        return {"hard": account.spec.hard or {}, "used": used}

    def refusal(self, pod: Document) -> str | None:
        """Return why a new pod is rejected as an API server words it; None if it is accepted."""
        metadata = pod["metadata"]
        if reason := self._closed(metadata["namespace"]):
            return f'pods "{metadata["name"]}" is forbidden: {reason}'
        accounts = self._accounts.get(metadata["namespace"], {})
        if not accounts:
            return None
        spec = decoding.convert(pod["spec"], core.PodSpec)
        use = _pod_usage(core.Pod(spec=spec))
        for name, account in sorted(accounts.items()):
            if not quota_scopes.counts(account.scopes, use.traits):
                continue
            requested = {each: use.amounts.get(each, 0) for each in account.hard}
            unsaid = _missing_requests(spec, account.hard)
            over = [
                each
                for each in sorted(requested)
                if each in use.amounts and account.used[each] + requested[each] > account.hard[each]
            ]
            if unsaid:
                reason = f"failed quota: {name}: must specify {unsaid}"
            elif over:
                reason = (
                    f"exceeded quota: {name}, requested: {_list(requested, over)}, "
                    f"used: {_list(account.used, over)}, limited: {_list(account.hard, over)}"
                )
            else:
                continue
            return f'pods "{metadata["name"]}" is forbidden: {reason}'
        return None

    def _close(self, namespace: str, name: str) -> None:
        self._forgive(namespace, kinds.RESOURCE_QUOTAS.plural, name)
        accounts = self._accounts.get(namespace, {})
        accounts.pop(name, None)
        if not accounts:
            self._accounts.pop(namespace, None)
            self._uses.pop(namespace, None)
            for resource, pod in list(self._unread.get(namespace, ())):
                if resource == kinds.PODS.plural:  # no quota counts them any more
                    self._forgive(namespace, resource, pod)

    def _read_pod(self, namespace: str, name: str, raw: bytes) -> _PodUsage | None:
        """Return the usage of a pod; None, and recorded as unreadable, if it cannot be decoded."""
        try:
            return _pod_usage(kinds.PODS.decode(raw))
        except (ValueError, msgspec.DecodeError) as error:
            self._blame(namespace, kinds.PODS.plural, name, error)
            return None

    def _blame(self, namespace: str, resource: str, name: str, error: Exception) -> None:
        self._unread.setdefault(namespace, {})[resource, name] = str(error)

    def _forgive(self, namespace: str, resource: str, name: str) -> None:
        unread = self._unread.get(namespace, {})
        unread.pop((resource, name), None)
        if not unread:
            self._unread.pop(namespace, None)

    def _closed(self, namespace: str) -> str:
        """Return why the namespace accepts no pod at all; empty if it accepts some."""
        unread = self._unread.get(namespace, {})
        if not unread:
            return ""
        (resource, name), why = min(unread.items())
        what = "pod" if resource == kinds.PODS.plural else "quota"
        return f"{what} {name} cannot be read: {why}; correct or delete it"

    def _book(self, namespace: str, before: _PodUsage | None, after: _PodUsage | None) -> list[str]:
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
    """Yield why a well-typed quota cannot be enforced."""
    try:
        spec = decoding.convert(document.get("spec") or {}, core.ResourceQuotaSpec)
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
                f"spec.hard[{name}]: is not counted by the embedded cluster; it counts pods, "
                "count/pods, cpu, memory, ephemeral-storage and hugepages-*, each also as "
                "requests.*, limits.cpu, limits.memory, limits.ephemeral-storage and "
                "requests.<domain>/<device>"
            )
    for each in quota_scopes.of(spec):
        yield from _scope_faults(each)


def _scope_faults(scope: core.ScopeRequirement) -> Iterator[str]:
    where = f"spec.scopeSelector: {scope.scope_name!r}"
    known = (*quota_scopes.SCOPES, quota_scopes.BY_PRIORITY)
    if scope.scope_name not in known:
        yield f"{where} is not a scope of pods, supported: {', '.join(known)}"
    elif scope.operator not in _OPERATORS:
        yield f"{where}: operator {scope.operator!r}, supported: {', '.join(_OPERATORS)}"
    elif scope.scope_name in quota_scopes.SCOPES and scope.operator != "Exists":
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


def _pod_usage(pod: core.Pod) -> _PodUsage:
    """Return the usage of a pod. A finished pod counts only for ``count/pods``."""
    ended = pod.status.phase in ("Succeeded", "Failed")
    amounts = {"count/pods": 1} if ended else quota.usage(pod.spec)
    return _PodUsage(amounts, quota_scopes.traits(pod.spec))


def _missing_requests(spec: core.PodSpec, hard: Mapping[str, int]) -> str:
    """Return the requests that the quota requires and containers lack."""
    missing = []
    for name in sorted(hard):
        if quota.resource(name) not in quota_scopes.MUST_BE_SAID:
            continue
        silent = {
            container.name
            for container in (*spec.containers, *spec.init_containers)
            if quota.resource(name)
            not in _effective_resources(container, limits=name.startswith("limits."))
        }
        if silent:
            missing.append(f"{name} for: {','.join(sorted(silent))}")
    return "; ".join(missing)


def _effective_resources(container: core.Container, *, limits: bool) -> set[str]:
    """Return the resources with a limit or, unless ``limits``, a request."""
    stated = container.resources
    return {*(stated.limits or {}), *(() if limits else stated.requests or {})}


def _list(amounts: Mapping[str, int], names: list[str]) -> str:
    return ",".join(f"{name}={quota.text(name, amounts[name])}" for name in names)
