"""Validation without a webhook: the rules that need only the object itself, as CEL policies.

The files `*.yaml` beside this module are ValidatingAdmissionPolicies with their bindings, one kind
each, generated from `rules` by `python -m stromboli.shared.jobspec.policies`. Lists of actions,
events, plugins and fields come from the Python rules, so there is one source.

`pods.yaml` belongs to every installation: the API server validates pods by itself, so that pods are
not blocked while admission is unavailable. The others are for clusters without our webhooks: with
webhooks they would report first and hide violations that only admission can find, such as a closed
queue.
"""

from stromboli.shared.jobspec.policies.manifests import (
    SCHEDULER_NAMES,
    documents,
    not_created_for_a_job,
    ours,
    paths,
)

__all__ = ["SCHEDULER_NAMES", "documents", "not_created_for_a_job", "ours", "paths"]
