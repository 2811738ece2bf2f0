"""Admission without a door: the rules that an object alone can break, as policies in CEL.

The files `*.yaml` beside this module are ValidatingAdmissionPolicies with their bindings, one kind
each, written from `rules` by `python -m stromboli.shared.jobspec.policies`; lists of actions,
events, plugins and fields come from the Python rules, so there is one source.

`pods.yaml` belongs to every installation: an API server judges pods by itself, so a door that is
shut keeps nobody's pods out. The others are for clusters without our webhooks: beside webhooks they
would speak first and hide what only admission can know, such as a queue that is closed.
"""

from stromboli.shared.jobspec.policies.manifests import (
    SCHEDULER_NAMES,
    documents,
    not_created_for_a_job,
    ours,
    paths,
)

__all__ = ["SCHEDULER_NAMES", "documents", "not_created_for_a_job", "ours", "paths"]
