"""Validation of pod templates.

An API server validates a pod when it is created, long after its job was admitted. Common mistakes
are therefore rejected here, when the submitter can still correct them. Source:
``pkg/apis/core/validation/validation.go`` of Kubernetes 1.34.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stromboli.shared import decoding
from stromboli.shared.api.core import ResourceRequirements, Toleration
from stromboli.shared.api.meta import ObjectMeta, Part
from stromboli.shared.formats import units
from stromboli.shared.jobspec.crds import pod_schema
from stromboli.shared.jobspec.validation import amounts, naming
from stromboli.shared.messages.admission import Violation

RESTART_POLICIES = ("Always", "OnFailure", "Never")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
MAX_TYPE_ERRORS = 1_000
"""Maximum number of values of a wrong type that are reported for one template."""
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class _Mount(Part, frozen=True, kw_only=True):
    name: str = ""
    mount_path: str = ""


class _Variable(Part, frozen=True, kw_only=True):
    name: str = ""
    value: str = ""
    value_from: dict[str, Any] | None = None


class _Port(Part, frozen=True, kw_only=True):
    container_port: int = 0


class _Container(Part, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    env: tuple[_Variable, ...] = ()
    ports: tuple[_Port, ...] = ()
    volume_mounts: tuple[_Mount, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()


class _Volume(Part, frozen=True, kw_only=True):
    name: str = ""


class TemplateSpec(Part, frozen=True, kw_only=True):
    """The parts of a template's spec that are validated or defaulted."""

    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    volumes: tuple[_Volume, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_selector: dict[str, str] | None = None
    restart_policy: str = ""
    host_network: bool = False
    dns_policy: str = ""
    priority_class_name: str | None = ""


_DECODER = decoding.decoder_of(TemplateSpec)
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def read(raw: msgspec.Raw) -> TemplateSpec | None:
    """The template's spec; None if it cannot be decoded, for which ``violations`` reports the
    reason."""
    try:
        return decoding.decode(_DECODER, raw)
    except msgspec.DecodeError:
        return None


def violations(raw: msgspec.Raw, path: str) -> Iterator[Violation]:
    """All violations of the pod spec at ``path``, including wrong JSON types;
    ``pod_schema.unknown_fields`` finds unknown fields.
    """
    type_violations: list[Violation] = []
    try:
        document = decoding.decode(_ANY, raw)
        errors = pod_schema.type_errors(document, pod_schema.POD_SPEC, path)
        type_violations = list(itertools.islice(errors, MAX_TYPE_ERRORS))
        yield from type_violations
        spec = decoding.decode(_DECODER, raw)
    except msgspec.DecodeError as error:
        reason, _, where = str(error).partition(" - at `$")
        if not type_violations:
            yield Violation(path=path + where.rstrip("`"), reason=reason)
        return
    if not spec.containers:
        yield Violation(
            path=f"{path}.containers", reason="has no container", expected="at least one container"
        )
    if spec.restart_policy and spec.restart_policy not in RESTART_POLICIES:
        yield Violation(
            path=f"{path}.restartPolicy",
            reason=f"{spec.restart_policy!r} is not a restart policy",
            expected=f"one of {', '.join(RESTART_POLICIES)}",
        )
    yield from _bad_labels(spec.node_selector or {}, f"{path}.nodeSelector")
    for index, toleration in enumerate(spec.tolerations):
        yield from _of_toleration(toleration, f"{path}.tolerations[{index}]")
    yield from _of_volumes(spec.volumes, f"{path}.volumes")
    volumes = {volume.name for volume in spec.volumes}
    there = naming.join_limited(sorted(volumes)) or "it has none"
    container_names: set[str] = set()
    for list_name, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for index, container in enumerate(containers):
            where = f"{path}.{list_name}[{index}]"
            yield from _of_container(container, where, container_names)
            yield from _of_mounts(container, f"{where}.volumeMounts", volumes, there)
            yield from _of_environment(container, f"{where}.env")


def of_metadata(metadata: ObjectMeta, path: str) -> Iterator[Violation]:
    """All violations of the labels and annotations at ``path``."""
    yield from _bad_labels(metadata.labels or {}, f"{path}.labels")
    for key in metadata.annotations or {}:
        if not naming.is_qualified(key.lower()):
            yield Violation(
                path=f"{path}.annotations[{key}]",
                reason=f"{key!r} is not a valid annotation key",
                expected=naming.KEY_EXPECTED,
            )


def _bad_labels(labels: Mapping[str, str], path: str) -> Iterator[Violation]:
    for key, value in labels.items():
        if not naming.is_qualified(key):
            yield Violation(
                path=f"{path}[{key}]",
                reason=f"{key!r} is not a valid label key",
                expected=naming.KEY_EXPECTED,
            )
        if not naming.is_label_value(value):
            yield Violation(
                path=f"{path}[{key}]",
                reason=f"{value!r} is not a valid label value",
                expected=naming.VALUE_EXPECTED,
            )


def _of_toleration(toleration: Toleration, path: str) -> Iterator[Violation]:
    if toleration.operator not in ("", "Equal", "Exists"):
        yield Violation(
            path=f"{path}.operator",
            reason=f"{toleration.operator!r} is not an operator",
            expected="Equal or Exists",
        )
    elif toleration.operator == "Exists" and toleration.value:
        yield Violation(
            path=f"{path}.value",
            reason=f"{toleration.value!r} is set with the operator Exists",
            expected="no value, or the operator Equal",
        )
    elif toleration.operator != "Exists" and not toleration.key:
        yield Violation(
            path=f"{path}.operator", reason="no key", expected="a key, or the operator Exists"
        )
    if toleration.effect and toleration.effect not in EFFECTS:
        yield Violation(
            path=f"{path}.effect",
            reason=f"{toleration.effect!r} is not a taint effect",
            expected=f"one of {', '.join(EFFECTS)}, or none for all",
        )


def _of_volumes(volumes: tuple[_Volume, ...], path: str) -> Iterator[Violation]:
    volume_names: set[str] = set()
    for index, volume in enumerate(volumes):
        yield from _of_name("volume", volume.name, f"{path}[{index}].name", volume_names)


def _of_name(what: str, name: str, path: str, earlier_names: set[str]) -> Iterator[Violation]:
    """Violations of the name of an item. ``earlier_names``: the names of earlier items; this name
    is added to them."""
    if not naming.is_label(name):
        yield Violation(
            path=path,
            reason=f"{name!r} is not a valid {what} name",
            expected=naming.LABEL_EXPECTED,
        )
    elif name in earlier_names:
        yield Violation(
            path=path,
            reason=f"{name!r} is the name of another {what}",
            expected="a unique name",
        )
    earlier_names.add(name)


def _of_mounts(
    container: _Container, path: str, volumes: set[str], there: str
) -> Iterator[Violation]:
    """Violations of the volume mounts of a container. ``there``: the list of volumes for
    messages."""
    mount_paths: set[str] = set()
    for index, mount in enumerate(container.volume_mounts):
        if mount.name not in volumes:
            yield Violation(
                path=f"{path}[{index}].name",
                reason=f"there is no volume {mount.name!r}",
                expected=f"one of the template's volumes: {there}",
            )
        if not mount.mount_path:
            yield Violation(
                path=f"{path}[{index}].mountPath", reason="no path", expected="a mount path"
            )
        elif mount.mount_path in mount_paths:
            yield Violation(
                path=f"{path}[{index}].mountPath",
                reason=f"{mount.mount_path} is mounted twice",
                expected="a path that no other mount uses",
            )
        mount_paths.add(mount.mount_path)


def _of_environment(container: _Container, path: str) -> Iterator[Violation]:
    for index, variable in enumerate(container.env):
        name = variable.name
        if not name or "=" in name or not (name.isascii() and name.isprintable()):
            yield Violation(
                path=f"{path}[{index}].name",
                reason=f"{name!r} is not a valid environment variable name",
                expected="printable ASCII characters without '='",
            )
        if variable.value and variable.value_from is not None:
            yield Violation(
                path=f"{path}[{index}].valueFrom",
                reason=f"{name} has both value and valueFrom",
                expected="either value or valueFrom",
            )


def _of_container(
    container: _Container, path: str, container_names: set[str]
) -> Iterator[Violation]:
    yield from _of_name("container", container.name, f"{path}.name", container_names)
    if not container.image.strip():
        yield Violation(path=f"{path}.image", reason="no image", expected="an image")
    if container.image_pull_policy and container.image_pull_policy not in PULL_POLICIES:
        yield Violation(
            path=f"{path}.imagePullPolicy",
            reason=f"{container.image_pull_policy!r} is not a pull policy",
            expected=f"one of {', '.join(PULL_POLICIES)}",
        )
    for index, port in enumerate(container.ports):
        if not 1 <= port.container_port <= 65535:
            yield Violation(
                path=f"{path}.ports[{index}].containerPort",
                reason=f"{port.container_port} is not a port",
                expected="1 to 65535",
            )
    yield from _of_resources(container.resources, f"{path}.resources")


def _of_resources(resources: ResourceRequirements, path: str) -> Iterator[Violation]:
    requests = resources.requests or {}
    limits = resources.limits or {}
    for part, quantities in (("requests", requests), ("limits", limits)):
        yield from _bad_quantities(quantities, f"{path}.{part}")
    for name, requested in requests.items():
        if name in limits and _is_above(name, requested, limits[name]):
            yield Violation(
                path=f"{path}.requests.{name}",
                reason=f"{requested} is more than the limit {limits[name]}",
                expected="a request of at most the limit",
            )
        elif naming.is_counted(name) and (
            name not in limits or _is_above(name, limits[name], requested)
        ):
            yield Violation(
                path=f"{path}.limits.{name}",
                reason=f"{limits.get(name, 'none')}, and the request is {requested}: devices and "
                "huge pages cannot be overcommitted",
                expected=f"set the limit to {requested}",
            )


def _bad_quantities(quantities: dict[str, str | int | float], path: str) -> Iterator[Violation]:
    for name, text in quantities.items():
        if not naming.is_qualified(name) or not (
            "/" in name or name in naming.NATIVE or name.startswith("hugepages-")
        ):
            yield Violation(
                path=f"{path}.{name}",
                reason=f"{name!r} is not a resource of containers",
                expected=f"{', '.join(naming.NATIVE)}, hugepages-SIZE or DOMAIN/DEVICE, such as "
                "nvidia.com/gpu",
            )
            continue
        yield from amounts.violations(path, name, text)


def _is_above(name: str, request: str | int | float, limit: str | int | float) -> bool:
    try:
        return units.amount(name, request) > units.amount(name, limit)
    except ValueError:
        return False  # reported already


def has_whole_cpus(raw: msgspec.Raw) -> bool:
    """Whether every container requests a positive whole number of CPUs (a limit counts if there is
    no request), as NUMA policies require.
    """
    spec = read(raw)
    if spec is None:
        return True  # reported elsewhere
    for container in (*spec.containers, *spec.init_containers):
        requested = container.resources.requests or container.resources.limits or {}
        try:
            cpu = units.amount("cpu", requested.get("cpu", 0))
        except ValueError:
            continue
        if cpu <= 0 or cpu % 1000:
            return False
    return True
