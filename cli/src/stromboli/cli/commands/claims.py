"""``strom claim`` and ``strom claimtemplate``: devices that pods claim (resource.k8s.io).

``strom apply`` creates and changes them.
"""

from stromboli.cli.commands import workloads
from stromboli.cli.render import claim_view
from stromboli.shared.api import kinds

CLAIMS = workloads.WorkloadKind(
    kinds.RESOURCE_CLAIMS,
    claim_view.CLAIM_HEADERS,
    claim_view.claim_row,
    claim_view.claim_facts,
    state="STATE",
)
TEMPLATES = workloads.WorkloadKind(
    kinds.RESOURCE_CLAIM_TEMPLATES,
    claim_view.TEMPLATE_HEADERS,
    claim_view.template_row,
    claim_view.template_facts,
)

claims = workloads.kind_app(CLAIMS, "Inspect claims: devices that are allocated to pods.")
templates = workloads.kind_app(TEMPLATES, "Inspect claim templates: each pod gets a claim.")
