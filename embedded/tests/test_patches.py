"""The effect of patches on a document, beyond the contract of the cluster."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.embedded.cluster import patches
from stromboli.shared import errors
from stromboli.testkit import objects

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab~/", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab~/", max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.text("ab~/", max_size=3), JSON, max_size=4)


def without_nulls(value: Any) -> Any:
    """The part that a merge patch can express: a null would remove a field."""
    if isinstance(value, dict):
        return {name: without_nulls(part) for name, part in value.items() if part is not None}
    return value


def pointer(*parts: str) -> str:
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)


@given(DOCUMENTS, st.text("ab~/", max_size=3), JSON)
def test_added_values_can_be_tested_and_removed(
    document: dict[str, Any], name: str, value: Any
) -> None:
    """Whatever the name: pointers escape two characters."""
    path = pointer(name)
    patch = objects.operations(("add", path, value), ("test", path, value), ("remove", path))
    expected = {key: old for key, old in document.items() if key != name}
    assert patches.apply(document, patch, "json", "x") == expected


@given(DOCUMENTS, DOCUMENTS)
def test_a_merge_patch_of_a_document_with_itself_changes_nothing(
    document: dict[str, Any], other: dict[str, Any]
) -> None:
    """And merging twice is merging once."""
    plain = without_nulls(document)
    assert patches.apply(plain, objects.merge(**plain), "merge", "x") == plain
    once = patches.apply(plain, objects.merge(**other), "merge", "x")
    assert patches.apply(once, objects.merge(**other), "merge", "x") == once


@given(DOCUMENTS, DOCUMENTS)
def test_the_original_document_is_not_changed(
    document: dict[str, Any], other: dict[str, Any]
) -> None:
    """A patch that fails in the middle has done nothing."""
    before = objects.read(objects.merge(**document))
    patches.apply(document, objects.merge(**other), "merge", "x")
    steps = [("add", pointer(name), value) for name, value in other.items()]
    with pytest.raises(errors.ConflictError):
        patches.apply(document, objects.operations(*steps, ("remove", "/missing/x")), "json", "x")
    assert document == before


@pytest.mark.parametrize(
    ("step", "result"),
    [
        (("add", "/list/0", 9), [9, 1, 2]),
        (("add", "/list/2", 9), [1, 2, 9]),
        (("add", "/list/-", 9), [1, 2, 9]),
        (("replace", "/list/1", 9), [1, 9]),
        (("remove", "/list/0"), [2]),
        (("test", "/list", [1, 2]), [1, 2]),
        (("test", "/absent", None), [1, 2]),
    ],
    ids=str,
)
def test_lists_are_patched_by_index(step: tuple[Any, ...], result: list[int]) -> None:
    patched = patches.apply({"list": [1, 2]}, objects.operations(step), "json", "x")
    assert patched == {"list": result}


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (("add", "/list/3", 9), errors.ConflictError),
        (("replace", "/list/-", 9), errors.ConflictError),
        (("remove", "/list/x"), errors.ConflictError),
        (("add", "/list/0/a", 9), errors.ConflictError),
        (("add", "list", 9), errors.InvalidError),
        (("copy", "/a", "/list"), errors.UnsupportedError),
    ],
    ids=str,
)
def test_a_patch_that_does_not_apply_is_an_error(
    step: tuple[Any, ...], error: type[errors.ExternalError]
) -> None:
    with pytest.raises(error, match=step[0]):
        patches.apply({"list": [1, 2]}, objects.operations(step), "json", "x")
