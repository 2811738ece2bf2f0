"""What is accepted and has no effect: the API server passes it on to whoever submits."""

from pathlib import Path

import msgspec
import pytest

from services.admission.tests.test_entry_points import opened, request
from stromboli.admission.core import admission_review
from stromboli.shared.api import kinds
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.admission_cases.rules import Case


@pytest.mark.parametrize(
    ("count", "shown"), [(0, None), (1, 1), (99, admission_review.MAX_WARNINGS)]
)
def test_an_accepted_object_carries_warnings_as_far_as_an_api_server_passes_them_on(
    count: int, shown: int | None
) -> None:
    answer = admission_review.encode_response("u", warnings=("x" * 1000,) * count)
    warnings = msgspec.json.decode(answer)["response"].get("warnings")
    if shown is None:
        assert warnings is None
    else:
        assert [len(it) for it in warnings] == [admission_review.MAX_WARNING_LENGTH] * shown


async def test_an_argument_that_a_plugin_does_not_have_is_a_warning(tmp_path: Path) -> None:
    document = manifests.job()
    document["spec"]["plugins"] = {"ssh": ["--no-root"]}
    body = msgspec.json.encode(request(Case(name="", kind=kinds.JOBS, document=document), document))
    async with opened(tmp_path) as entry_points:
        answer = msgspec.json.decode(await entry_points.admission.answer("/jobs/validate", body))[
            "response"
        ]
    assert answer["allowed"]
    (warning,) = answer["warnings"]
    assert warning.startswith("spec.plugins.ssh: --no-root ignored: unknown; known are ")
