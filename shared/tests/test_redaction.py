"""Answers that are kept on the log carry no literal values of environment variables or Secrets."""

from typing import Any

import msgspec
import pytest

from stromboli.shared.jobspec.redaction import REDACTED, redacted

PLAIN = {"kind": "Job", "spec": {"tasks": [{"env": [{"name": "A", "valueFrom": {"x": 1}}]}]}}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            {"spec": {"containers": [{"env": [{"name": "A", "value": "s3cret"}]}]}},
            {"spec": {"containers": [{"env": [{"name": "A", "value": REDACTED}]}]}},
        ),
        (
            {"kind": "Secret", "data": {"key": "czNjcmV0"}, "stringData": {"other": "s3cret"}},
            {"kind": "Secret", "data": {"key": REDACTED}, "stringData": {"other": REDACTED}},
        ),
        (
            {"spec": {"plugins": {"ssh": ["--ssh-private-key=s3cret", "--port=22"]}}},
            {"spec": {"plugins": {"ssh": [f"--ssh-private-key={REDACTED}", "--port=22"]}}},
        ),
        (
            {"spec": {"plugins": {"ssh": ["-ssh-private-key", "s3cret"]}}},
            {"spec": {"plugins": {"ssh": ["-ssh-private-key", REDACTED]}}},
        ),
    ],
)
def test_secrets_are_redacted_and_the_rest_stays(
    document: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert msgspec.json.decode(redacted(msgspec.json.encode(document))) == expected


def test_a_document_without_secrets_is_the_same_bytes() -> None:
    body = b" " + msgspec.json.encode(PLAIN)
    assert redacted(body) == body
