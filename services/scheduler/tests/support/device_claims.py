"""Devices and pods that claim them: tests name only what matters to the rule."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stromboli.shared import decoding
from stromboli.shared.api import core, meta, resource
from stromboli.testkit import builders

DRIVER = "gpu.example.com"


def device_class(name: str = "gpu", *expressions: str) -> resource.DeviceClass:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return decoding.convert(
        {"metadata": {"name": name}, "spec": {"selectors": selectors}}, resource.DeviceClass
    )


def devices(
    node: str,
    count: int,
    *,
    attributes: Sequence[Mapping[str, Any]] = (),
    pool: str = "",
    generation: int = 1,
    **place: Any,
) -> resource.ResourceSlice:
    """Devices of one node, with attributes of each if given."""
    found = [
        {"name": f"{node}-gpu-{at}", **(attributes[at] if at < len(attributes) else {})}
        for at in range(count)
    ]
    spec = {
        "driver": DRIVER,
        "pool": {"name": pool or node, "generation": generation, "resourceSliceCount": 1},
        "devices": found,
        **(place or {"nodeName": node}),
    }
    metadata = {"name": f"{node}-{pool}-{generation}"}
    return decoding.convert({"metadata": metadata, "spec": spec}, resource.ResourceSlice)


def named(node: str) -> core.NodeSelector:
    """A node selector for one node."""
    field = core.SelectorRequirement(key="metadata.name", operator="In", values=(node,))
    return core.NodeSelector(node_selector_terms=(core.NodeSelectorTerm(match_fields=(field,)),))


def claim(
    name: str,
    count: int = 1,
    *,
    allocated: Sequence[str] = (),
    node: str = "",
    requests: Sequence[Mapping[str, Any]] = (),
    constraints: Sequence[Mapping[str, Any]] = (),
    **exactly: Any,
) -> resource.ResourceClaim:
    """A claim to devices of the class ``gpu``; ``allocated``: devices of ``node`` that it holds."""
    wanted = requests or [
        {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count, **exactly}}
    ]
    status: dict[str, Any] = {}
    if allocated:
        results = [{"driver": DRIVER, "pool": node, "device": each} for each in allocated]
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        status["allocation"] = {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": terms},
        }
    return decoding.convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": wanted, "constraints": constraints}},
            "status": status,
        },
        resource.ResourceClaim,
    )


def pod(name: str, group: str, *claims: str, **more: Any) -> core.Pod:
    """A pod with claims."""
    return using(builders.make_pod(name, group, **more), *claims)


def using(made: core.Pod, *claims: str) -> core.Pod:
    """The pod, which uses claims."""
    used = tuple(
        core.PodResourceClaim(name=f"c{at}", resource_claim_name=each)
        for at, each in enumerate(claims)
    )
    return msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, resource_claims=used)
    )


def from_template(name: str, group: str, made: str | None, **more: Any) -> core.Pod:
    """A pod with a claim from a template; None if it does not exist yet."""
    found = builders.make_pod(name, group, **more)
    statuses = (
        () if made is None else (core.PodResourceClaimStatus(name="c", resource_claim_name=made),)
    )
    return msgspec.structs.replace(
        found,
        spec=msgspec.structs.replace(
            found.spec,
            resource_claims=(core.PodResourceClaim(name="c", resource_claim_template_name="t"),),
        ),
        status=msgspec.structs.replace(found.status, resource_claim_statuses=statuses),
    )


def group(name: str, pods: Sequence[core.Pod], **more: Any) -> list[meta.Object]:
    """A gang of pods that needs all of them by default."""
    more = {"min_member": len(pods), "phase": "Inqueue", **more}
    return [builders.make_pod_group(name, more.pop("min_member"), **more), *pods]
