"""What is wrong with a pod template.

An API server checks a pod only when it is made, long after its job was accepted; so the mistakes
that people make are refused here, where they can still be told.
"""

from collections.abc import Iterator

import msgspec

from stromboli.shared import units
from stromboli.shared.admission import naming
from stromboli.shared.api.core import ResourceRequirements
from stromboli.shared.api.meta import Part
from stromboli.shared.messages.admission import Violation

RESTART_POLICIES = ("Always", "OnFailure", "Never")


class _Container(Part, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()


class TemplateSpec(Part, frozen=True, kw_only=True):
    """The parts of a template's spec that are checked or completed."""

    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    restart_policy: str = ""
    host_network: bool = False
    dns_policy: str = ""


_DECODER = msgspec.json.Decoder(TemplateSpec)


def read(raw: msgspec.Raw) -> TemplateSpec | None:
    """The template's spec, None if it is not one: ``violations`` then says why."""
    try:
        return _DECODER.decode(raw)
    except msgspec.DecodeError:
        return None


def violations(raw: msgspec.Raw, path: str) -> Iterator[Violation]:
    """Everything wrong with the spec that stands at ``path``."""
    try:
        spec = _DECODER.decode(raw)
    except msgspec.DecodeError as error:
        reason, _, where = str(error).partition(" - at `$")
        yield Violation(path=path + where.rstrip("`"), reason=reason)
        return
    if not spec.containers:
        yield Violation(
            path=f"{path}.containers", reason="no container", expected="at least one container"
        )
    if spec.restart_policy and spec.restart_policy not in RESTART_POLICIES:
        yield Violation(
            path=f"{path}.restartPolicy",
            reason=f"{spec.restart_policy!r} is not a restart policy",
            expected=f"one of {', '.join(RESTART_POLICIES)}",
        )
    seen: set[str] = set()
    for list_name, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for index, container in enumerate(containers):
            yield from _of_container(container, f"{path}.{list_name}[{index}]", seen)
            seen.add(container.name)


def _of_container(container: _Container, path: str, seen: set[str]) -> Iterator[Violation]:
    if not naming.is_label(container.name):
        yield Violation(
            path=f"{path}.name",
            reason=f"{container.name!r} is not a container's name",
            expected=naming.LABEL_EXPECTED,
        )
    elif container.name in seen:
        yield Violation(
            path=f"{path}.name",
            reason=f"{container.name!r} is taken by another container",
            expected="a name of its own",
        )
    if not container.image.strip():
        yield Violation(path=f"{path}.image", reason="no image", expected="an image")
    requests = container.resources.requests or {}
    limits = container.resources.limits or {}
    for part, quantities in (("requests", requests), ("limits", limits)):
        yield from _bad_quantities(quantities, f"{path}.resources.{part}")
    for name in requests.keys() & limits.keys():
        if _is_above(name, requests[name], limits[name]):
            yield Violation(
                path=f"{path}.resources.requests.{name}",
                reason=f"{requests[name]} is more than the limit {limits[name]}",
                expected="a request of at most the limit",
            )


def _bad_quantities(quantities: dict[str, str | int | float], path: str) -> Iterator[Violation]:
    for name, text in quantities.items():
        try:
            value = units.quantity(text)
        except ValueError as error:
            yield Violation(path=f"{path}.{name}", reason=str(error))
            continue
        if value < 0:
            yield Violation(
                path=f"{path}.{name}", reason=f"{text} is negative", expected="0 or more"
            )
        elif naming.is_counted(name) and value % 1:
            yield Violation(
                path=f"{path}.{name}", reason=f"{text} is not whole", expected="a whole number"
            )


def _is_above(name: str, request: str | int | float, limit: str | int | float) -> bool:
    try:
        return units.amount(name, request) > units.amount(name, limit)
    except ValueError:
        return False  # said already


def has_whole_cpus(raw: msgspec.Raw) -> bool:
    """Whether every container asks for a whole, positive number of CPUs (limits count where no
    request is given), as NUMA policies need."""
    spec = read(raw)
    if spec is None:
        return True  # said elsewhere
    for container in (*spec.containers, *spec.init_containers):
        asked = container.resources.requests or container.resources.limits or {}
        try:
            cpu = units.amount("cpu", asked.get("cpu", 0))
        except ValueError:
            continue
        if cpu <= 0 or cpu % 1000:
            return False
    return True
