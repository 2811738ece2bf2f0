"""An object that is applied again is merged with the stored one, whatever its fields hold."""

from typing import Any

import pytest

from stromboli.shared.jobspec.validation import patch


@pytest.mark.parametrize("wrong", ["text", ["a"], 7, True])
@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_labels_and_annotations_of_another_type_are_kept_for_validation(
    part: str, wrong: Any
) -> None:
    """Merging them raised, and REST answered with 500."""
    before = {"metadata": {"name": "train", part: {"a": "1"}}}
    assert (
        patch.merged(before, {"metadata": {"name": "train", part: wrong}})["metadata"][part]
        == wrong
    )


def test_labels_and_annotations_are_added_to_those_there_are() -> None:
    before = {"metadata": {"labels": {"a": "1", "b": "1"}, "annotations": None}}
    wanted = {"metadata": {"labels": {"b": "2"}, "annotations": {"c": "3"}}}
    assert patch.merged(before, wanted)["metadata"] == {
        "labels": {"a": "1", "b": "2"},
        "annotations": {"c": "3"},
    }
