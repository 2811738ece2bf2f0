"""Cases of jobs with data sets: valid ones, and by the path of their only violation."""

from typing import Any

from stromboli.testkit.admission_cases.manifests import Document, job

DIGEST = "sha256:" + "0123456789abcdef" * 4
CLAIM = {"name": "a", "persistentVolumeClaim": "a", "mountPath": "/data"}


def data_set(**changes: Any) -> Document:
    """A data set in a bucket, with changes."""
    return {"name": "a", "uri": "s3://bucket/a", "mountPath": "/data", **changes}


def _of(*data_sets: Document, **spec: Any) -> Document:
    return job(dataSets=list(data_sets), **spec)


VALID: dict[str, Document] = {
    "data-of-a-bucket-and-of-a-claim": _of(
        data_set(size="12Gi", digest=DIGEST, locality="Required", sharing="Spread"),
        {"name": "b", "persistentVolumeClaim": "b", "mountPath": "/b", "readOnly": False},
    ),
    "data-of-fluid": _of(data_set(uri="fluid://default/images")),
    "data-of-a-query": _of(data_set(uri="https://example.org/a?download=1")),
}
INVALID: dict[str, tuple[str, Document]] = {
    "two-data-sets-of-one-name": (
        "spec.dataSets[1].name",
        _of(data_set(), data_set(mountPath="/b")),
    ),
    "two-data-sets-at-one-path": (
        "spec.dataSets[1].mountPath",
        _of(data_set(), data_set(name="b")),
    ),
    "a-data-set-at-the-path-of-a-volume": (
        "spec.dataSets[0].mountPath",
        _of(data_set(), volumes=[{"mountPath": "/data", "volumeClaimName": "data"}]),
    ),
    "a-data-set-of-no-source": ("spec.dataSets[0]", _of({"name": "a", "mountPath": "/data"})),
    "a-data-set-of-two-sources": ("spec.dataSets[0]", _of(data_set(persistentVolumeClaim="b"))),
    "a-uri-to-write-to": ("spec.dataSets[0].readOnly", _of(data_set(readOnly=False))),
    "a-path-that-is-no-uri": ("spec.dataSets[0].uri", _of(data_set(uri="/mnt/images"))),
    "a-uri-with-a-space": ("spec.dataSets[0].uri", _of(data_set(uri="s3://b/a b"))),
    "a-uri-with-a-password": (
        "spec.dataSets[0].uri",
        _of(data_set(uri="https://ann:secret@example.org/a")),
    ),
}
CONTEXT_INVALID: dict[str, tuple[str, Document]] = {
    "a-uri-with-a-signature": (
        "spec.dataSets[0].uri",
        _of(data_set(uri="https://example.org/a?X-Amz-Signature=1")),
    ),
    "a-uri-to-the-parent-folder": (
        "spec.dataSets[0].uri",
        _of(data_set(uri="file:///data/../etc")),
    ),
    "data-of-fluid-in-another-namespace": (
        "spec.dataSets[0].uri",
        _of(data_set(uri="fluid://other/images")),
    ),
    "a-fluid-uri-without-a-data-set": (
        "spec.dataSets[0].uri",
        _of(data_set(uri="fluid://images")),
    ),
    "a-digest-of-fluid": (
        "spec.dataSets[0].digest",
        _of(data_set(uri="fluid://default/images", digest=DIGEST)),
    ),
    "a-digest-of-a-claim": ("spec.dataSets[0].digest", _of({**CLAIM, "digest": DIGEST})),
    "a-shared-claim": ("spec.dataSets[0].sharing", _of({**CLAIM, "sharing": "Share"})),
    "a-negative-size": ("spec.dataSets[0].size", _of(data_set(size="-1Gi"))),
}
"""Cases that no CEL rule covers."""
