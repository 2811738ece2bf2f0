"""The data sets of a job, and the annotation that describes them on its pods.

A job names data sets in ``spec.dataSets``. The controller describes those that caches on nodes hold
in the annotation ``keys.DATA_SETS`` of each pod: a JSON list, sorted by name. The scheduler and the
caches read only this annotation, so that they treat pods of other controllers in the same way.

A cache stores a copy under its *content key*, which is derived from the URI and the digest: jobs
that name the same content share one copy, and another digest is another copy. The directory
``ROOT/KEY/content`` exists only while the copy is complete and verified; a pod mounts it as a
``hostPath`` volume of the type ``Directory``, for which a kubelet waits. So no container starts
without its data.

*Digest*: the SHA-256 of the manifest of the content, which has one line ``HEX  PATH\\n`` per file,
as ``sha256sum`` prints it, sorted by path; PATH is relative to the data set, and is the base name
if the data set is one file.
"""

import hashlib
import re
from collections.abc import Mapping
from decimal import ROUND_CEILING
from typing import Annotated, Literal, NamedTuple

import msgspec

from stromboli.shared import decoding, keys
from stromboli.shared.api import batch
from stromboli.shared.formats import units

DEFAULT_ROOT = "/var/lib/stromboli/data"
"""The directory of a node in which its cache stores copies."""
CONTENT = "content"
FLUID = "fluid"
"""The scheme of data sets that Fluid caches: ``fluid://NAMESPACE/DATASET``."""
PREFERRED, REQUIRED = "Preferred", "Required"
SHARE, SPREAD = "Share", "Spread"
MOST_DATA_SETS = 32
"""Maximum number of data sets of a job; each is compared with the copies of every node."""
LONGEST_URI = 1024
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_URI = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[!-\"$-.0->@-~]*)"
    r"(?P<path>[!-\"$->@-~]*)(\?(?P<query>[!-\"$-~]*))?(#[!-~]*)?"
)
"""A scheme in lower case and printable ASCII without spaces; the authority has no ``/``, ``?`` and
``#``, the path no ``?`` and ``#``, the query no ``#``.
"""
_FLUID_URI = re.compile(r"fluid://([a-z0-9]([-a-z0-9]*[a-z0-9])?)/([a-z0-9]([-a-z0-9]*[a-z0-9])?)")


class DataSetRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A data set of a pod, as in its annotation.

    ``key``: the content key; empty for a data set of Fluid, which our caches do not hold.
    ``digest``: empty if any content is accepted. ``bytes``: the size, 0 if unknown. ``sharing``:
    empty for neither ``Share`` nor ``Spread``.
    """

    name: str
    uri: str
    key: str = ""
    digest: str = ""
    bytes: Annotated[int, msgspec.Meta(ge=0, le=units.LARGEST)] = 0
    locality: Literal["Preferred", "Required"] = "Preferred"
    sharing: Literal["", "Share", "Spread"] = ""


_REQUESTS = decoding.decoder_of(tuple[DataSetRequest, ...])
_ENCODER = msgspec.json.Encoder()


def content_key(uri: str, digest: str) -> str:
    """The content key of a data set: 32 hexadecimal characters. ``digest`` may be empty."""
    return hashlib.sha256(f"{uri}\n{digest}".encode()).hexdigest()[:32]


def volume_path(root: str, key: str) -> str:
    """The directory of a complete copy in the cache at ``root``."""
    return f"{root.rstrip('/')}/{key}/{CONTENT}"


def fluid_data_set(uri: str) -> tuple[str, str] | None:
    """Namespace and name of a data set of Fluid; None for any other URI."""
    match = _FLUID_URI.fullmatch(uri)
    return (match[1], match[3]) if match else None


def size_bytes(size: str | int) -> int:
    """The bytes of a ``size``, 0 if it is empty. Raises ValueError if it is not a quantity or is
    negative."""
    if size == "":
        return 0
    value = units.quantity(size)
    if value < 0:
        raise ValueError(f"{size} is negative")
    return int(value.to_integral_value(ROUND_CEILING))


def request_of(data_set: batch.DataSet) -> DataSetRequest:
    """The request of a data set with a URI. Raises ValueError for an invalid size."""
    is_fluid = scheme(data_set.uri) == FLUID
    return DataSetRequest(
        name=data_set.name,
        uri=data_set.uri,
        key="" if is_fluid else content_key(data_set.uri, data_set.digest),
        digest=data_set.digest,
        bytes=size_bytes(data_set.size),
        locality="Required" if data_set.locality == REQUIRED else "Preferred",
        sharing=_SHARING.get(data_set.sharing, ""),
    )


_SHARING: Mapping[str, Literal["", "Share", "Spread"]] = {SHARE: "Share", SPREAD: "Spread"}


def requests_of(annotations: Mapping[str, str] | None) -> tuple[DataSetRequest, ...]:
    """The data sets of a pod, empty without the annotation. Raises ValueError that names the
    annotation and the error: an unreadable annotation never means "no data sets".
    """
    text = (annotations or {}).get(keys.DATA_SETS)
    if text is None:
        return ()
    try:
        requests = decoding.decode(_REQUESTS, text)
    except msgspec.DecodeError as error:
        raise ValueError(f"annotation {keys.DATA_SETS} is unreadable: {error}") from None
    if len(requests) > MOST_DATA_SETS:
        raise ValueError(
            f"annotation {keys.DATA_SETS} has {len(requests)} data sets, at most {MOST_DATA_SETS} "
            "are allowed"
        )
    for request in requests:
        expected = "" if scheme(request.uri) == FLUID else content_key(request.uri, request.digest)
        if request.key != expected:
            raise ValueError(
                f"annotation {keys.DATA_SETS} has the key {request.key[:40]!r} for the data set "
                f"{request.name[:63]!r}, whose key is {expected!r}"
            )
        if request.digest and not DIGEST.fullmatch(request.digest):
            raise ValueError(
                f"annotation {keys.DATA_SETS} has the digest {request.digest[:80]!r} for the data "
                f"set {request.name[:63]!r}, expected sha256:HEX"
            )
    return requests


def annotation(requests: tuple[DataSetRequest, ...]) -> str:
    """The value of a pod's annotation."""
    ordered = sorted(requests, key=lambda request: request.name)
    return _ENCODER.encode(ordered).decode()


class Uri(NamedTuple):
    """The parts of a URI as written. ``parameters``: names in its query."""

    scheme: str
    authority: str
    path: str
    parameters: tuple[str, ...]


def split_uri(uri: str) -> Uri | None:
    """The parts of a URI (RFC 3986, appendix B); None if it has another form."""
    match = _URI.fullmatch(uri)
    if match is None:
        return None
    query = re.split("[&;]", match["query"] or "")
    names = tuple(name for part in query if (name := part.partition("=")[0]))
    return Uri(match["scheme"], match["authority"], match["path"], names)


def scheme(uri: str) -> str:
    """The scheme of a URI in lower case, such as ``s3``; empty if it has none."""
    parts = split_uri(uri)
    return "" if parts is None else parts.scheme
