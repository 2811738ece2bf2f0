"""Stromboli takes over what Volcano left, and Volcano could take over what Stromboli leaves.

The cluster holds fifty jobs in every phase with the objects of their plugins, queues and leases, as
Volcano writes them and without our own code (``stromboli.testkit.volcano``). The services start,
continue the jobs, and stop again; what remains must satisfy the rules of Volcano's controllers.
Pods end while no service runs, and after a second start the jobs reach their end.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stromboli.shared.api import kinds
from stromboli.testkit.volcano import adoption, installation, jobs
from tests.e2e import conftest
from tests.e2e.support import polling, takeover
from tests.e2e.support.rest_user import User, job

pytestmark = pytest.mark.timeout(900)  # starting the real parts counts, on a busy machine, too
WITHIN_S = 300.0
RULES = "default: {runSeconds: 100000}\n"
AGAIN = jobs.JobLeft(name="again", phase="", tasks=installation.WORKERS)
"""A job that a user submits to Volcano after the way back: no webhook of ours rejects it."""
SUCCEEDED = {"phase": "Succeeded"}
UNSEEN = {"job default/wait-new", "job default/wait-groupless"}
"""Jobs that Volcano itself had not handled yet."""
NEW = {**job("submitted", 100_000, pods=2), "apiVersion": jobs.BATCH}
NEW["spec"] |= {"schedulerName": jobs.SCHEDULER, "plugins": {"svc": [], "ssh": []}}


class EmbeddedServices:
    """All services in one process."""

    def __init__(self, state: Path) -> None:
        (state / "rules.yaml").write_text(RULES)
        options = ("--nodes", str(takeover.NODES), "--rules", str(state / "rules.yaml"))
        self._system = conftest.Embedded(state, *options)
        self._state = state

    @property
    def url(self) -> str:
        return self._system.url

    def start(self) -> None:
        self._system.start()

    def stop(self) -> None:
        self._system.stop()

    def cluster(self) -> contextlib.AbstractContextManager[takeover.Cluster]:
        return takeover.embedded_cluster(self._state)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def services(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[takeover.Services]:
    """A cluster in which Stromboli is not installed yet."""
    if request.param == "embedded":
        yield EmbeddedServices(tmp_path)
        return
    request.getfixturevalue("real_tools")
    with asyncio.Runner() as runner:
        real_services = takeover.RealServices(tmp_path, runner)
        real_services.start_cluster()
        try:
            yield real_services
        finally:
            real_services.end()


def test_jobs_of_volcano_are_taken_over_and_given_back_and_run_to_their_end(
    services: takeover.Services,
    request: pytest.FixtureRequest,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    is_real = request.node.callspec.id == "real"
    cases = installation.cases()
    with services.cluster() as cluster:
        uids = takeover.leave(cluster, kubelets_run=is_real)
        left = adoption.Objects(cluster.objects().all.values())
    assert {line.partition(": ")[0] for line in adoption.problems(left)} == UNSEEN

    # Take over.
    began = time.monotonic()
    services.start()
    record_testsuite_property("ready_s", time.monotonic() - began)
    user = User(services.url)
    come_to(user, {case.left.name: case.after for case in cases})
    record_testsuite_property("taken_over_s", time.monotonic() - began)
    user.submit(NEW)
    come_to(user, {"submitted": "Running"})
    user.close()

    # Go back.
    began = time.monotonic()
    services.stop()
    record_testsuite_property("stopped_s", time.monotonic() - began)
    with services.cluster() as cluster:
        given_back = cluster.objects()
        assert list(adoption.problems(given_back)) == []
        assert_kept(left, given_back, uids)
        cluster.create(jobs.job(AGAIN), dry_run=True)
        for pod in cluster.all(kinds.PODS):
            if pod["status"].get("phase") == "Running":
                cluster.report(pod, {"status": SUCCEEDED})

    # Return, and run all jobs to their end.
    services.start()
    user = User(services.url)
    come_to(user, {case.left.name: case.end for case in cases} | {"submitted": "Completed"})
    user.close()
    services.stop()
    with services.cluster() as cluster:
        ended = cluster.objects()
    assert list(adoption.problems(ended)) == []
    assert_kept(left, ended, uids)


def come_to(user: User, wanted: dict[str, str]) -> None:
    """Wait until jobs are in these phases; fail with those that are not."""

    def others() -> dict[str, tuple[str, str]]:
        found = user.job_phases()
        return {
            name: (found.get(name, "absent"), phase)
            for name, phase in wanted.items()
            if found.get(name) != phase
        }

    polling.until(others, lambda left: not left, WITHIN_S)


def assert_kept(before: adoption.Objects, after: adoption.Objects, uids: dict[str, str]) -> None:
    """No job is lost, no pod was replaced, no retry was spent, and what had ended is unchanged."""
    alive = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in after.of("Pod")}
    assert {name: alive.get(name) for name in uids} == uids
    for found in before.of("Job"):
        key = f"{found['metadata']['namespace']}/{found['metadata']['name']}"
        now = after.all["Job", key]
        assert now["metadata"]["uid"] == found["metadata"]["uid"], key
        status, later = found.get("status", {}), now["status"]
        assert later.get("retryCount", 0) == status.get("retryCount", 0), key
        if status.get("state", {}).get("phase") in jobs.FINISHED:
            assert later["state"] == status["state"], key
    for found in before.of("Secret"):
        key = f"{found['metadata']['namespace']}/{found['metadata']['name']}"
        kept = after.all.get(("Secret", key), found)  # that of a job that has ended is deleted
        assert kept["data"]["id_rsa"] == found["data"]["id_rsa"], key
