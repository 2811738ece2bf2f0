"""The option ``--data`` of ``strom job run``: a data set in one word. Pure.

::

    NAME=URI:/MOUNT[,size=SIZE][,digest=sha256:HEX][,locality=Required][,sharing=Share|Spread]
    NAME=claim:CLAIM:/MOUNT[,write]
"""

import re
from typing import Any

import msgspec

Document = dict[str, Any]
FORM = "NAME=URI:/MOUNT[,size=12Gi][,locality=Required]"
_CLAIM = "claim:"
_WRITE = "write"
_FIELDS = ("size", "digest", "locality", "sharing")
_SETTING = re.compile(rf"(.*),({_WRITE}|(?:{'|'.join(_FIELDS)})=[^,]*)", re.DOTALL)


class DataArgument(msgspec.Struct, frozen=True):
    """An entry of ``spec.dataSets``."""

    entry: Document


def parse(text: str) -> DataArgument:
    """The entry; admission validates its fields. Raises ValueError."""
    name, equals, rest = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} has no name; write {FORM}")
    settings: Document = {}
    while match := _SETTING.fullmatch(rest):
        rest, setting = match[1], match[2]
        field, _, value = setting.partition("=")
        if field in settings:
            raise ValueError(f"{field} is set twice in {text!r}; set it once")
        settings[field] = value
    source, _, mount = rest.rpartition(":/")
    if not (source.startswith(_CLAIM) or "://" in source):
        raise ValueError(f"{text!r} has no mount path; write {FORM}")
    entry: Document = {"name": name, "mountPath": f"/{mount}"}
    is_claim = source.startswith(_CLAIM)
    if _WRITE in settings and not is_claim:
        raise ValueError(
            f"{name} is a URI: pods can only read it; write results to a PersistentVolumeClaim"
        )
    if is_claim:
        entry["persistentVolumeClaim"] = source.removeprefix(_CLAIM)
    else:
        entry["uri"] = source
    if settings.pop(_WRITE, None) is not None:
        entry["readOnly"] = False
    return DataArgument(entry | settings)
