"""The custom resources: their definitions, their defaults and what is wrong with a document.

The files `*.yaml` beside this module are what `kubectl apply -f` takes; they are written from
`source/` by `python -m stromboli.shared.jobspec.crds`, and that is where to edit. The same schemas
answer here, without an API server, so that every way in (webhook, REST, manifest, the embedded
cluster) refuses and completes the same objects with the same words.

Everything here is a pure function of its arguments and of the packaged files.
"""

from stromboli.shared.jobspec.crds.catalog import documents, paths
from stromboli.shared.jobspec.crds.defaulting import apply_defaults
from stromboli.shared.jobspec.crds.schema_validation import violations

__all__ = ["apply_defaults", "documents", "paths", "violations"]
