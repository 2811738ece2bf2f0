"""Validation of a job's data sets."""

import re
from collections.abc import Iterator

from stromboli.shared.api import batch
from stromboli.shared.jobspec import data_sets
from stromboli.shared.jobspec.validation import naming
from stromboli.shared.messages.admission import Violation

URI_EXPECTED = "a URI such as s3://bucket/path, https://host/file or file:///path"
SECRET_PARAMETER = re.compile(
    r"sig|x-amz-.*|x-goog-.*|.*(token|secret|signature|passw|credential|api_?key|access_?key|auth).*",
    re.IGNORECASE,
)
"""Names of query parameters that sign a request or contain a credential."""


def violations(job: batch.Job) -> Iterator[Violation]:
    """Violations of all data sets of a job. O(data sets)."""
    job_data_sets = job.spec.data_sets
    if len(job_data_sets) > data_sets.MOST_DATA_SETS:
        yield Violation(
            path="spec.dataSets",
            reason=f"{len(job_data_sets)} data sets",
            expected=f"at most {data_sets.MOST_DATA_SETS}",
        )
        return
    mounted = {volume.mount_path for volume in job.spec.volumes} - {""}
    named: set[str] = set()
    for index, data_set in enumerate(job_data_sets):
        path = f"spec.dataSets[{index}]"
        yield from _of_name(data_set, path, named)
        yield from _of_mount(data_set, path, mounted)
        yield from _of_source(job, data_set, path)
        yield from _of_size(data_set, path)
        named.add(data_set.name)
        mounted.add(data_set.mount_path)


def _of_name(data_set: batch.DataSet, path: str, named: set[str]) -> Iterator[Violation]:
    if not naming.is_label(data_set.name):
        yield Violation(
            path=f"{path}.name",
            reason=f"{data_set.name[:100]!r} is not a valid data set name",
            expected=naming.LABEL_EXPECTED,
        )
    elif data_set.name in named:
        yield Violation(
            path=f"{path}.name",
            reason=f"{data_set.name} is the name of another data set",
            expected="a unique name",
        )


def _of_mount(data_set: batch.DataSet, path: str, mounted: set[str]) -> Iterator[Violation]:
    if not data_set.mount_path.startswith("/") or ":" in data_set.mount_path:
        yield Violation(
            path=f"{path}.mountPath",
            reason=f"{data_set.mount_path[:100]!r} is not an absolute path",
            expected='an absolute path without ":"',
        )
    elif data_set.mount_path in mounted:
        yield Violation(
            path=f"{path}.mountPath",
            reason=f"{data_set.mount_path} is mounted already",
            expected="a path that no other mount uses",
        )


def _of_size(data_set: batch.DataSet, path: str) -> Iterator[Violation]:
    try:
        data_sets.size_bytes(data_set.size)
    except ValueError as error:
        yield Violation(
            path=f"{path}.size", reason=str(error), expected="a size in bytes such as 12Gi"
        )


def _of_source(job: batch.Job, data_set: batch.DataSet, path: str) -> Iterator[Violation]:
    if bool(data_set.uri) == bool(data_set.persistent_volume_claim):
        which = "both {} and {}" if data_set.uri else "neither {} nor {}"
        yield Violation(
            path=path,
            reason=which.format("uri", "persistentVolumeClaim"),
            expected="exactly one of the two",
        )
    elif data_set.uri:
        yield from _of_uri(job, data_set, path)
    else:
        yield from _of_claim(data_set, path)


def _of_claim(data_set: batch.DataSet, path: str) -> Iterator[Violation]:
    name = data_set.persistent_volume_claim
    if not naming.is_subdomain(name):
        yield Violation(
            path=f"{path}.persistentVolumeClaim",
            reason=f"{name[:100]!r} is not a valid claim name",
            expected=naming.SUBDOMAIN_EXPECTED,
        )
    for field in ("digest", "sharing"):
        if getattr(data_set, field):
            yield Violation(
                path=f"{path}.{field}",
                reason=f"{field} applies only to copies of a uri",
                expected="leave it out, or set a uri",
            )


def _of_uri(job: batch.Job, data_set: batch.DataSet, path: str) -> Iterator[Violation]:
    if not data_set.read_only:
        yield Violation(
            path=f"{path}.readOnly",
            reason="a data set with a uri is read-only",
            expected="true; write results to a persistentVolumeClaim",
        )
    parts = _split(data_set.uri)
    if parts is None:
        yield Violation(
            path=f"{path}.uri",
            reason=f"is not a URI of at most {data_sets.LONGEST_URI} characters",
            expected=URI_EXPECTED,
        )
        return
    if problem := _problem_of(parts):
        yield Violation(
            path=f"{path}.uri", reason=problem, expected="give the credential to the nodes' caches"
        )
    if ".." in parts.path.split("/"):
        yield Violation(
            path=f"{path}.uri", reason='the path contains ".."', expected="a path without it"
        )
    is_fluid = parts.scheme == data_sets.FLUID
    if is_fluid:
        yield from _of_fluid(job, data_set, path)
    if data_set.digest and is_fluid:
        yield Violation(
            path=f"{path}.digest", reason="Fluid verifies no digest", expected="leave it out"
        )
    elif data_set.digest and not data_sets.DIGEST.fullmatch(data_set.digest):
        yield Violation(
            path=f"{path}.digest",
            reason=f"{data_set.digest[:100]!r} is not a digest",
            expected="sha256: followed by 64 lower-case hexadecimal digits",
        )


def _of_fluid(job: batch.Job, data_set: batch.DataSet, path: str) -> Iterator[Violation]:
    namespace_and_name = data_sets.fluid_data_set(data_set.uri)
    if namespace_and_name is None:
        yield Violation(
            path=f"{path}.uri",
            reason="names no data set of Fluid",
            expected="fluid://NAMESPACE/DATASET",
        )
    elif job.metadata.namespace and namespace_and_name[0] != job.metadata.namespace:
        yield Violation(
            path=f"{path}.uri",
            reason=f"the data set is in the namespace {namespace_and_name[0]}, and its claim "
            "cannot be mounted",
            expected=f"a data set in the namespace {job.metadata.namespace}",
        )


def _split(uri: str) -> data_sets.Uri | None:
    """The parts of a URI; None if it is not one or is too long."""
    uri_parts = None if len(uri) > data_sets.LONGEST_URI else data_sets.split_uri(uri)
    return uri_parts if uri_parts is not None and (uri_parts.authority or uri_parts.path) else None


def _problem_of(parts: data_sets.Uri) -> str:
    """The credential in a URI, which is published with the job; empty if there is none."""
    if "@" in parts.authority:
        return "contains a user name or password"
    for name in parts.parameters:
        if SECRET_PARAMETER.fullmatch(name):
            return f"the query parameter {name[:40]} contains a credential"
    return ""
