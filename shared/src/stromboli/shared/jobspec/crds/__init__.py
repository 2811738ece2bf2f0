"""The custom resources: their definitions, their defaults and their validation.

The files `*.yaml` in this folder are applied with `kubectl apply -f`. They are generated from
`source/` by `python -m stromboli.shared.jobspec.crds`; edit `source/`. The same schemas are
evaluated here, without an API server, so that every entry point (webhook, REST, manifest, the
embedded cluster) applies the same defaults and rejects the same objects with the same messages.

All functions here are pure functions of their arguments and of the packaged files.
"""

from stromboli.shared.jobspec.crds.catalog import documents, paths
from stromboli.shared.jobspec.crds.defaulting import apply_defaults
from stromboli.shared.jobspec.crds.schema_validation import violations

__all__ = ["apply_defaults", "documents", "paths", "violations"]
