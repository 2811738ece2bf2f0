"""Validation without a webhook, by ValidatingAdmissionPolicies in CEL: the rules that need only the
object itself.

The files `*.yaml` in this folder contain these policies with their bindings, one file per kind,
generated from `rules` by `python -m stromboli.shared.jobspec.policies`. Lists of actions, events,
plugins and fields come from the Python rules, so both implementations use the same lists.

`pods.yaml` belongs to every installation: the API server validates pods by itself, so that pods are
not blocked while admission is unavailable. The others are for clusters without our webhooks. In a
cluster with webhooks they would reject objects first and hide violations that only admission can
detect, such as a closed queue.
"""

from stromboli.shared.jobspec.policies.manifests import (
    SCHEDULER_NAMES,
    documents,
    not_created_for_a_job,
    ours,
    paths,
)

__all__ = ["SCHEDULER_NAMES", "documents", "not_created_for_a_job", "ours", "paths"]
