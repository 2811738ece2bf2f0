"""Jobs that were created while the webhook was down are validated by the same rules."""

from collections.abc import Sequence

import msgspec
import pytest

from stromboli.controller.core.jobs import job_objects
from stromboli.controller.core.pods import pods, revalidation
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.shared.api import batch, kinds
from stromboli.shared.jobspec import job_plugins
from stromboli.testkit import builders
from stromboli.testkit.admission_cases import rules
from stromboli.testkit.admission_cases.rules import Case

CASES = [case for case in rules.CASES if case.kind == kinds.JOBS and case.operation == "CREATE"]


def read(case: Case, status: batch.JobStatus | None = None) -> batch.Job:
    job = kinds.JOBS.decode(msgspec.json.encode(case.document))
    meta = msgspec.structs.replace(job.metadata, namespace="default", uid="u")
    return msgspec.structs.replace(job, metadata=meta, status=status or batch.JobStatus())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_job_is_refused_again_for_what_is_wrong_in_itself(case: Case) -> None:
    """Its queue, its plugins and the existing HyperNodes are checked elsewhere."""
    elsewhere = case.refused == "spec.queue" or case.refused.startswith("spec.plugins")
    elsewhere |= case.refused.endswith("networkTopology") and not case.in_cel
    paths = {violation.path for violation in revalidation.refusals(read(case))}
    assert paths == ({case.refused} - {""} if not elsewhere else set())


def test_no_pod_is_created_for_an_invalid_job() -> None:
    wrong = next(case for case in CASES if case.refused == "spec.minAvailable")
    (obstacle,) = pods.blockers(read(wrong))
    assert obstacle.reason == "Refused"
    assert "spec.minAvailable" in obstacle.message


def test_what_has_begun_is_let_be() -> None:
    wrong = next(case for case in CASES if case.refused == "spec.minAvailable")
    begun = batch.JobStatus(state=batch.JobState(phase="Running"))
    assert list(revalidation.refusals(read(wrong, begun))) == []


class CountingPlugin(job_plugins.Plugin):
    """Counts how often it is asked for problems of a job."""

    name = "counting"

    def __init__(self) -> None:
        self.calls = 0

    def job_problem(self, job: batch.Job, arguments: Sequence[str]) -> str:
        """See ``Plugin.job_problem``."""
        self.calls += 1
        return "it cannot run" if job.spec.min_available else ""


def test_a_version_of_a_job_is_examined_once() -> None:
    """Most reconciles follow changes of pods, which do not make a job invalid."""
    plugin = CountingPlugin()
    cache = controller_cache.ControllerCache(
        ["volcano"], event_history.EventHistory(), {plugin.name: plugin}
    )
    first = builders.make_job(tasks=[builders.make_task()], plugins={plugin.name: ()})
    expected = [f"plugin {plugin.name}: it cannot run; no pod is created"]
    for _ in range(2):
        assert [it.message for it in job_objects.blockers(cache, first)] == expected
    assert plugin.calls == 1
    spec = msgspec.structs.replace(first.spec, min_available=0)
    changed = msgspec.structs.replace(first, spec=spec)
    assert list(job_objects.blockers(cache, changed)) == []
    assert plugin.calls == 2
    for each in (builders.snapshot_of(changed), builders.tombstone_of(changed)):
        cache.apply(builders.make_record(each))
    assert cache.blockers == {}
