"""The data sets in the pods of a job: an annotation for the scheduler and the caches of nodes, and
a read-only volume of each copy.

The volume of a copy is a ``hostPath`` of the type ``Directory``: a kubelet starts no container
before the directory exists, and a cache creates it only together with a complete, verified copy. A
Fluid data set is mounted from the claim of the same name, which Fluid creates in the namespace of
the data set.
"""

import hashlib
from typing import Any

from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.jobspec import data_sets
from stromboli.shared.jobspec.job_plugins import base


def problem(job: batch.Job) -> str:
    """Why no pod of the job can have its data sets; empty if they can. Admission rejects such
    jobs."""
    for data_set in job.spec.data_sets:
        try:
            data_sets.request_of(data_set)
        except ValueError as error:
            return f"the size of the data set {data_set.name}: {error}"
        if not claim_name(data_set) and not data_sets.scheme(data_set.uri):
            return f"the data set {data_set.name} has neither persistentVolumeClaim nor uri"
    return ""


def annotations(job: batch.Job) -> dict[str, str]:
    """The annotation of every pod that uses the data sets; empty without a URI. Raises ValueError
    if there is a ``problem``."""
    requests = tuple(data_sets.request_of(each) for each in job.spec.data_sets if each.uri)
    return {keys.DATA_SETS: data_sets.annotation(requests)} if requests else {}


def has_claims(job: batch.Job) -> bool:
    """Whether a data set is a claim."""
    return any(map(claim_name, job.spec.data_sets))


def claim_name(data_set: batch.DataSet) -> str:
    """The claim of a data set; empty for a data set that our caches hold."""
    fluid = data_sets.fluid_data_set(data_set.uri)
    return data_set.persistent_volume_claim if fluid is None else fluid[1]


def mount(spec: dict[str, Any], job: batch.Job, root: str) -> None:
    """Mount the data sets in every container, also in init containers. ``root``: the directory of
    the nodes' caches. If the pod already has a volume with the claim of a data set, the data set is
    mounted from this volume."""
    if not job.spec.data_sets:
        return
    pod_volumes = list(spec.get("volumes") or ())
    of_claims = {claim: each["name"] for each in pod_volumes if (claim := _claim_in(each))}
    for data_set in job.spec.data_sets:
        claim = claim_name(data_set)
        name = of_claims.get(claim) if claim else None
        if name is None:
            volume = _volume(data_set, root)
            name = volume["name"]
            pod_volumes.append(volume)
            of_claims[claim] = name
        mount = {"name": name, "mountPath": data_set.mount_path, "readOnly": data_set.read_only}
        for container in base.containers({"spec": spec}):
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    spec["volumes"] = pod_volumes


def _volume(data_set: batch.DataSet, root: str) -> dict[str, Any]:
    name = f"data-{hashlib.sha256(data_set.name.encode()).hexdigest()[:12]}"
    if claim := claim_name(data_set):
        return {"name": name, "persistentVolumeClaim": {"claimName": claim}}
    key = data_sets.content_key(data_set.uri, data_set.digest)
    path = data_sets.volume_path(root, key)
    return {"name": name, "hostPath": {"path": path, "type": "Directory"}}


def _claim_in(volume: dict[str, Any]) -> str:
    source = volume.get("persistentVolumeClaim")
    return str(source.get("claimName", "")) if isinstance(source, dict) else ""
