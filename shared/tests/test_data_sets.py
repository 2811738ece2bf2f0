"""What pods say about their data sets."""

import hashlib

import pytest

from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.jobspec import data_sets

DIGEST = "sha256:" + "a" * 64


def test_a_content_key_is_derived_from_uri_and_digest() -> None:
    expected = hashlib.sha256(f"s3://a/b\n{DIGEST}".encode()).hexdigest()[:32]
    assert data_sets.content_key("s3://a/b", DIGEST) == expected
    assert data_sets.content_key("s3://a/b", "") != expected


def test_the_path_of_a_copy_is_below_the_root_of_the_cache() -> None:
    assert data_sets.volume_path("/var/cache/", "abc") == "/var/cache/abc/content"


def test_an_annotation_is_read_as_it_is_written_sorted_by_name() -> None:
    requests = tuple(
        data_sets.request_of(batch.DataSet(name=name, uri=f"s3://b/{name}", size="1Gi"))
        for name in ("z", "a")
    )
    read = data_sets.requests_of({keys.DATA_SETS: data_sets.annotation(requests)})
    assert [(request.name, request.bytes) for request in read] == [("a", 2**30), ("z", 2**30)]


def test_a_pod_without_the_annotation_has_no_data_sets() -> None:
    assert data_sets.requests_of(None) == ()
    assert data_sets.requests_of({"other": "[]"}) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"name": "a"}',
        '[{"name": "a"}]',
        '[{"name": "a", "uri": "s3://b/a", "key": "../../etc"}]',
        '[{"name": "a", "uri": "s3://b/a", "bytes": -1}]',
        '[{"name": "a", "uri": "s3://b/a", "locality": "Always"}]',
        '[{"name": "a", "uri": "fluid://n/d", "key": "0123"}]',
    ],
)
def test_an_unreadable_annotation_is_an_error_and_never_no_data_sets(text: str) -> None:
    with pytest.raises(ValueError, match=keys.DATA_SETS):
        data_sets.requests_of({keys.DATA_SETS: text})


def test_a_digest_of_another_form_is_an_error() -> None:
    key = data_sets.content_key("s3://b/a", "md5:12")
    text = f'[{{"name": "a", "uri": "s3://b/a", "key": "{key}", "digest": "md5:12"}}]'
    with pytest.raises(ValueError, match="sha256:HEX"):
        data_sets.requests_of({keys.DATA_SETS: text})


def test_more_data_sets_than_the_limit_are_an_error() -> None:
    requests = tuple(
        data_sets.request_of(batch.DataSet(name=f"d{each}", uri=f"s3://b/{each}"))
        for each in range(data_sets.MOST_DATA_SETS + 1)
    )
    with pytest.raises(ValueError, match="at most 32"):
        data_sets.requests_of({keys.DATA_SETS: data_sets.annotation(requests)})


def test_a_data_set_of_fluid_has_no_content_key() -> None:
    request = data_sets.request_of(batch.DataSet(name="a", uri="fluid://team/images"))
    assert request.key == ""
    assert data_sets.fluid_data_set(request.uri) == ("team", "images")
    assert data_sets.fluid_data_set("fluid://team") is None
    assert data_sets.fluid_data_set("s3://team/images") is None


@pytest.mark.parametrize(
    ("size", "expected"), [("", 0), ("0", 0), ("1.5Ki", 1536), (10, 10), ("1m", 1)]
)
def test_a_size_is_a_quantity_in_bytes_rounded_up(size: str | int, expected: int) -> None:
    assert data_sets.size_bytes(size) == expected


@pytest.mark.parametrize("size", ["-1", "many"])
def test_a_size_that_is_no_amount_is_an_error(size: str) -> None:
    with pytest.raises(ValueError):
        data_sets.size_bytes(size)
