"""Device claims and their templates: rows of a list, and one in full. Pure."""

from collections.abc import Sequence
from datetime import datetime

from stromboli.cli.render import output
from stromboli.shared.api import resource

CLAIM_HEADERS = ("NAME", "STATE", "REQUESTS", "DEVICES", "RESERVED FOR", "AGE")
TEMPLATE_HEADERS = ("NAME", "REQUESTS", "AGE")
ALL = "all"
"""The amount of a request for every matching device of a node."""


def claim_row(claim: resource.ResourceClaim, now: datetime) -> tuple[str, ...]:
    """A claim as a row under ``CLAIM_HEADERS``."""
    return (
        claim.metadata.name,
        claim_state(claim),
        requests(claim.spec),
        ",".join(_devices(claim)),
        ",".join(each.name for each in claim.status.reserved_for),
        output.age(claim.metadata.creation_timestamp, now),
    )


def claim_state(claim: resource.ResourceClaim) -> str:
    """``pending``, ``allocated`` or ``allocated,reserved``, as kubectl prints it."""
    if claim.status.allocation is None:
        return "pending"
    return "allocated,reserved" if claim.status.reserved_for else "allocated"


def claim_facts(claim: resource.ResourceClaim, now: datetime) -> list[str]:
    """Spec and status of the claim, a fact per line."""
    return output.facts(
        ("claim", claim.metadata.key),
        ("state", claim_state(claim)),
        ("requests", requests(claim.spec)),
        ("devices", ", ".join(_devices(claim)) or "none"),
        ("pods", ", ".join(each.name for each in claim.status.reserved_for) or "none"),
        ("age", output.age(claim.metadata.creation_timestamp, now)),
    )


def template_row(template: resource.ResourceClaimTemplate, now: datetime) -> tuple[str, ...]:
    """A template as a row under ``TEMPLATE_HEADERS``."""
    return (
        template.metadata.name,
        requests(template.spec.spec),
        output.age(template.metadata.creation_timestamp, now),
    )


def template_facts(template: resource.ResourceClaimTemplate, now: datetime) -> list[str]:
    """The claim that is created for each pod, a fact per line."""
    labels = template.spec.metadata.labels or {}
    return output.facts(
        ("claimtemplate", template.metadata.key),
        ("requests", requests(template.spec.spec)),
        ("labels", ",".join(f"{name}={value}" for name, value in labels.items()) or "none"),
        ("age", output.age(template.metadata.creation_timestamp, now)),
    )


def requests(spec: resource.ResourceClaimSpec) -> str:
    """Number and class of the devices of each request; alternatives are separated by ``or``."""
    return ", ".join(
        " or ".join(f"{_amount(each)} {each.device_class_name}" for each in _alternatives(request))
        for request in spec.devices.requests
    )


def _alternatives(
    request: resource.DeviceRequest,
) -> Sequence[resource.ExactRequest | resource.SubRequest]:
    return [request.exactly] if request.exactly is not None else request.first_available


def _amount(request: resource.ExactRequest | resource.SubRequest) -> str:
    return ALL if request.allocation_mode == "All" else str(request.count or 1)


def _devices(claim: resource.ResourceClaim) -> list[str]:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return [f"{each.pool}/{each.device}" for each in results]
