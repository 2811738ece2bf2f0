"""The topics carry no literal values of environment variables; pods and child jobs have them."""

import copy
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import J, enqueued, submitted
from stromboli.controller.core import commands
from stromboli.controller.core.store import complete_specs
from stromboli.shared.api import batch, kinds
from stromboli.shared.jobspec import redaction
from stromboli.testkit.builders import make_cron, make_flow, make_job, make_task, make_template

VALUE = "s3cret"


def with_value(value: str = VALUE, **more: object) -> batch.Job:
    container = {"name": "main", "image": "busybox", "env": [{"name": "A", "value": value}]}
    return make_job(tasks=[make_task(pod_spec={"containers": [container]})], **more)  # type: ignore[arg-type]


def reads(harness: CoreHarness) -> list[commands.ReadSpec]:
    return [it for it in harness.done if isinstance(it, commands.ReadSpec)]


def value_of(harness: CoreHarness, kind: kinds.Kind[Any], key: str) -> str:
    body = harness.objects[kind.plural, key]
    template = body["spec"]["tasks"][0]["template"] if kind is kinds.JOBS else body
    (variable, *_) = template["spec"]["containers"][0]["env"]
    return str(variable["value"])


def test_a_new_job_gets_its_values_without_a_further_request() -> None:
    """The response to its first status write has them."""
    harness = enqueued(with_value())
    assert value_of(harness, kinds.PODS, f"{J}-worker-0") == VALUE
    assert not reads(harness)


def test_a_controller_that_takes_over_reads_a_job_before_it_creates_its_pods() -> None:
    harness = submitted(with_value())
    harness.restart()
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    assert value_of(harness, kinds.PODS, f"{J}-worker-0") == VALUE
    assert len(reads(harness)) == 1


def test_a_controller_that_takes_over_reads_no_job_that_needs_no_pod() -> None:
    harness = enqueued(with_value())
    harness.restart()
    harness.settle()
    assert not reads(harness)


def test_a_job_without_values_is_never_read() -> None:
    harness = submitted(make_job())
    harness.restart()
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    assert harness.names(kinds.PODS)
    assert not reads(harness)


def test_plugins_get_the_arguments_that_the_topic_leaves_out() -> None:
    arguments = (f"--ssh-private-key={VALUE}", "--ssh-public-key=public")
    harness = CoreHarness()
    harness.submit(make_job(plugins={"ssh": arguments}))
    harness.settle()
    (secret,) = (command for command in harness.done if is_secret(command))
    assert isinstance(secret, commands.Create)
    assert redaction.REDACTED.encode() not in secret.body
    harness.restart()
    harness.done.clear()
    harness.settle()
    assert not any(map(is_secret, harness.done))


def is_secret(command: commands.Command) -> bool:
    return isinstance(command, commands.Create) and command.kind is kinds.SECRETS


@pytest.mark.parametrize("restarts", [False, True])
def test_jobs_of_a_cron_have_the_values_of_its_newest_template(restarts: bool) -> None:
    harness = CoreHarness()
    harness.submit(make_cron("c", "0 * * * *", with_value()))
    harness.settle()
    created: list[str] = []
    for value in (VALUE, "another"):
        body = copy.deepcopy(harness.objects[kinds.CRON_JOBS.plural, "default/c"])
        changed = make_cron("c", "0 * * * *", with_value(value)).spec
        body["spec"] = msgspec.json.decode(msgspec.json.encode(changed))
        harness.put(kinds.CRON_JOBS, body)
        if restarts:
            harness.see()
            harness.restart()
        harness.settle()
        harness.wait(timedelta(hours=1).total_seconds())
        harness.settle()
        (new,) = set(harness.names(kinds.JOBS)) - set(created)
        assert value_of(harness, kinds.JOBS, f"default/{new}") == value
        created.append(new)


@pytest.mark.parametrize("restarts", [False, True])
def test_jobs_of_a_flow_have_the_values_of_their_template(restarts: bool) -> None:
    harness = CoreHarness()
    harness.submit(make_flow("f", {"a": []}))
    harness.settle()
    if restarts:
        harness.restart()
    harness.submit(make_template("a", with_value()))
    harness.settle()
    assert value_of(harness, kinds.JOBS, "default/f-a") == VALUE
    assert {read.kind for read in reads(harness)} == {kinds.JOB_TEMPLATES}


def test_a_value_that_reads_as_redacted_is_a_value() -> None:
    """A user may write it: the job is read once, not in a loop."""
    harness = submitted(with_value(redaction.REDACTED))
    harness.restart()
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    assert value_of(harness, kinds.PODS, f"{J}-worker-0") == redaction.REDACTED
    assert len(reads(harness)) == 1


def test_specs_of_objects_that_are_deleted_are_forgotten() -> None:
    specs, job = complete_specs.CompleteSpecs(), with_value()
    specs.note(job)
    assert specs.completed(redaction.without_values(job)).spec == job.spec  # type: ignore[attr-defined]
    specs.forget(job.metadata.uid)
    assert not specs.has(job)


def test_an_older_generation_completes_nothing() -> None:
    specs = complete_specs.CompleteSpecs()
    old, new = with_value(version=1), redaction.without_values(with_value("other", version=2))
    specs.note(old)
    assert specs.completed(new) is new
