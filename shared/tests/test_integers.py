"""Integers of objects have the bounds that Kubernetes' own types have."""

import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from stromboli.shared import decoding
from stromboli.shared.api import kinds, meta

ALL = [kind for kind in vars(kinds).values() if isinstance(kind, kinds.Kind)]


def unbounded(of: Any, path: str) -> Iterator[str]:
    """Paths of integers without bounds."""
    if of is int:
        yield path
    elif isinstance(of, type) and issubclass(of, msgspec.Struct):
        for field in msgspec.structs.fields(of):
            yield from unbounded(field.type, f"{path}.{field.encode_name}")
    elif typing.get_origin(of) is not typing.Annotated:
        is_quantity = {str, int, float} <= set(typing.get_args(of))  # read as text, see ``units``
        for part in () if is_quantity else typing.get_args(of):
            yield from unbounded(part, path)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.kind)
def test_every_integer_of_an_object_has_bounds(kind: kinds.Kind[Any]) -> None:
    """Else a custom resource may hold one that no vector, timer or encoder takes."""
    assert list(unbounded(kind.struct, kind.kind)) == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (kinds.PODS, '"spec": {"topologySpreadConstraints": [{"maxSkew": 1%s}]}'),
        (kinds.PODS, '"spec": {"priority": 2147483648%.0s}'),
        (kinds.HYPER_NODES, '"spec": {"tier": 1%s, "members": []}'),
        (kinds.POD_GROUPS, '"spec": {"minMember": -1%s}'),
        (kinds.POD_GROUPS, '"spec": {"minTaskMember": {"a": 1%s}}'),
        (kinds.QUEUES, '"spec": {"weight": 1%s}'),
    ],
)
def test_an_integer_beyond_its_bounds_cannot_be_read(kind: kinds.Kind[Any], text: str) -> None:
    document = '{"metadata": {"name": "x"}, %s}' % (text % ("0" * 30))
    with pytest.raises(msgspec.DecodeError, match="Expected `int`"):
        kind.decode(document.encode())


def test_the_bounds_are_those_of_int32_and_int64() -> None:
    assert decoding.from_json(b"9223372036854775807", meta.Int64) == 2**63 - 1
    assert decoding.from_json(b"-2147483648", meta.Int32) == -(2**31)
