"""No record, whatever its bytes, ends the consumer of submissions or raises anything but its
documented error."""

from datetime import UTC, datetime, timedelta

import pytest

from stromboli.admission.core import submissions, wire
from stromboli.admission.core.submissions import Refused
from stromboli.shared import envelope, topics
from stromboli.testkit import poison

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("what", poison.SUBMISSIONS)
def test_a_poison_record_is_refused_with_a_status(what: str) -> None:
    changes, value = poison.SUBMISSIONS[what]
    record = envelope.Record(topics.SUBMISSIONS, 7, "k", value, poison.SUBMISSION | changes)
    found = submissions.read(record, NOW, timedelta(seconds=900))
    if isinstance(found, Refused):
        assert found.status in (400, 401, 408, 413)
        assert poison.DIGITS not in found.detail


@pytest.mark.parametrize("body", [value for _, value in poison.SUBMISSIONS.values()])
def test_a_webhook_body_that_cannot_be_read_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="not an AdmissionReview"):
        wire.decode(body)
