"""Applies JSON patches and merge patches to JSON documents.

JSON patches (RFC 6902) with the operations add, replace, remove and test, whose pointers are RFC
6901, and merge patches (RFC 7386). Where an RFC and the API server differ, this module follows the
server: a test of null holds for an absent member.
"""

import copy
from typing import Any

import msgspec

from stromboli.shared import decoding, errors

Document = dict[str, Any]
_MISSING = object()


class Step(msgspec.Struct, frozen=True):
    """One operation of a JSON patch."""

    op: str
    path: str
    value: Any = None


_STEPS = decoding.decoder_of(list[Step])
_MERGE = decoding.decoder_of(Document)


def apply(document: Document, patch: bytes, patch_type: str, what: str) -> Document:
    """Return a patched copy of the document.

    Raises ConflictError if a step of a JSON patch does not apply (its test fails or its path is
    missing), InvalidError if the patch is malformed, UnsupportedError for other operations.
    """
    try:
        if patch_type == "merge":
            merged: Document = _merged(document, _MERGE.decode(patch))
            return merged
        steps = _STEPS.decode(patch)
    except msgspec.DecodeError as error:
        raise errors.InvalidError(what, f"not a {patch_type} patch: {error}") from None
    result: Document = msgspec.to_builtins(document)  # copies it ten times as fast as deepcopy
    for step in steps:
        try:
            _apply(result, step)
        except LookupError as error:
            raise errors.ConflictError(what, f"{step.op} {step.path}: {error.args[0]}") from None
        except NotImplementedError:
            reason = "the embedded cluster does not support this operation"
            raise errors.UnsupportedError(f"{what}: JSON patch {step.op}", reason) from None
        except ValueError as error:
            raise errors.InvalidError(what, f"{step.op} {step.path}: {error}") from None
    return result


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def _apply(document: Document, step: Step) -> None:
    if step.op not in ("add", "replace", "remove", "test"):
        raise NotImplementedError
    *parents, last = _pointer(step.path)
    place: Any = document
    for part in parents:
        place = _child(place, part)
        if place is _MISSING:
            raise LookupError(f"{part!r} does not exist")
    if isinstance(place, dict):
        _apply_member(place, last, step)
    elif isinstance(place, list):
        _apply_item(place, last, step)
    else:
        raise LookupError("the parent is neither an object nor a list")  # noqa: TRY004 - a path that does not exist


def _pointer(path: str) -> list[str]:
    """Split a JSON pointer. The whole document is never patched, so there is at least one part."""
    if not path.startswith("/"):
        raise ValueError("the path does not begin with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _child(place: Any, part: str) -> Any:
    if isinstance(place, dict):
        return place.get(part, _MISSING)
    if isinstance(place, list) and part.isdecimal() and int(part) < len(place):
        return place[int(part)]
    return _MISSING


def _apply_member(place: Document, name: str, step: Step) -> None:
    if step.op == "test":
        _test(place.get(name), step.value)
    elif step.op == "add":
        place[name] = copy.deepcopy(step.value)
    elif name not in place:
        raise LookupError("does not exist")
    elif step.op == "remove":
        del place[name]
    else:
        place[name] = copy.deepcopy(step.value)


def _apply_item(place: list[Any], part: str, step: Step) -> None:
    end = len(place)
    index = end if part == "-" else int(part) if part.isdecimal() else -1
    if not 0 <= index < end + (step.op == "add"):
        raise LookupError(f"the list has {end} items")
    if step.op == "test":
        _test(place[index], step.value)
    elif step.op == "add":
        place.insert(index, copy.deepcopy(step.value))
    elif step.op == "remove":
        del place[index]
    else:
        place[index] = copy.deepcopy(step.value)


def _test(value: Any, expected: Any) -> None:
    if value != expected:
        raise LookupError(f"{value!r} is not {expected!r}")
