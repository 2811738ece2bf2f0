"""Users may edit labels and annotations: no value may stop the controller, since that would stop it
for all jobs."""

import copy
from datetime import timedelta

import pytest

from services.controller.tests import test_unmanaged_pods
from services.controller.tests.support.core_harness import KINDS, CoreHarness
from stromboli.controller.core import commands, failures, reconcilers
from stromboli.controller.core.jobs import policies
from stromboli.controller.core.store import controller_cache
from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.testkit import builders

NAMES = sorted(
    value
    for name, value in vars(keys).items()
    if name.isupper() and isinstance(value, str) and "/" in value and not value.endswith("/")
)
TEXTS = (
    "",
    "9" * 5000,
    "9" * 25,
    "9" * 12,
    "-1",
    "1e999",
    "²",
    "٣",
    "{",
    "[]",
    "null",
    '{"a": 1}',
    '[{"tool": "jupyter"}]',
    '{"spec": {"minMember": "x"}, "annotations": {"a": "b"}}',
    '{"spec": []}',
    "2026-13-40T99:99:99Z",
    "0-5",
    "afterok:j1",
    "true",
)
WRITTEN_BY_US = (keys.GROUP_NAME,)
"""Another text there leads to another PodGroup, or none."""


def harness() -> CoreHarness:
    """A job with plugins, one of a flow, and a pod of others, all running."""
    made = CoreHarness()
    made.submit(builders.make_job(plugins={"env": (), "svc": (), "ssh": ()}))
    made.submit(builders.make_template("a", builders.make_job()))
    made.submit(builders.make_flow("f", {"a": []}))
    test_unmanaged_pods.add(made, "web-a")
    made.settle()
    for key in (made.group_key(), made.group_key("default/f-a"), test_unmanaged_pods.G):
        made.enqueue(key)
    made.settle()
    made.run()
    made.settle()
    return made


@pytest.mark.parametrize(
    "item",
    [
        controller_cache.ReconcileKey("cron", "default/c"),
        controller_cache.ReconcileKey("job", "default/j1"),
    ],
)
def test_what_we_have_no_rule_for_stops_its_own_object_alone(
    item: controller_cache.ReconcileKey,
) -> None:
    """A clock without a zone cannot be reckoned with."""
    here = CoreHarness()
    here.submit(builders.make_cron("c", "@every 1h"))
    here.submit(builders.make_job(ttl_seconds_after_finished=3600))
    here.settle()
    here.enqueue(here.group_key())
    for phase in ("Running", "Succeeded"):
        here.settle()
        here.run(phase=phase)
    here.settle()
    with pytest.raises(TypeError) as found:
        reconcilers.plan(here.cache, item, here.now.replace(tzinfo=None))
    said, *note = failures.reconcile_failed(here.cache, item, found.value, here.now)
    assert isinstance(said, commands.RecordEvent)
    assert said.name == item.key.partition("/")[2]
    assert note, "the reason is recorded on the object"
    assert reconcilers.plan(here.cache, item, here.now) is not None


def test_a_back_off_that_doubles_indefinitely_ends_at_its_longest() -> None:
    policy = batch.LifecyclePolicy(backoff="8000000h", max_backoff="8760000h")
    assert policies.backoff(policy, 10**6) == timedelta(hours=8_760_000)


MOST, MOST_INT32 = 2**63 - 1, 2**31 - 1


def test_no_number_of_a_spec_is_too_large() -> None:
    """The API server takes what 64 bits hold; a calendar ends before."""
    here = CoreHarness()
    here.submit(builders.make_cron("c", "@every 1h", starting_deadline_seconds=MOST_INT32))
    here.submit(
        builders.make_job(ttl_seconds_after_finished=MOST_INT32, active_deadline_seconds=MOST)
    )
    here.settle()
    here.wait(3600)
    here.settle()
    here.enqueue(here.group_key())
    here.settle()
    here.run()
    here.settle()
    here.run(phase="Succeeded")
    here.settle()
    assert here.phase() == "Completed"
    here.wait(3600)


def test_a_job_of_too_many_pods_does_not_block_the_controller() -> None:
    """It was created while the webhook was down."""
    here = CoreHarness()
    huge = builders.make_task(replicas=2**31 - 1)
    here.submit(builders.make_job("huge", tasks=[huge], plugins={"svc": (), "ssh": ()}))
    here.submit(builders.make_job())
    here.settle()
    assert "Refused" in here.reasons()
    assert [it.metadata.name for it in here.groups()] == [here.group_key().partition("/")[2]]


@pytest.mark.parametrize("place", ["annotations", "labels"])
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:20] or "empty")
def test_whatever_is_written_there_the_controller_continues(text: str, place: str) -> None:
    here = harness()
    words = {name: text for name in NAMES if name not in WRITTEN_BY_US}
    for (plural, _), body in list(here.objects.items()):
        changed = copy.deepcopy(body)
        changed["metadata"][place] = {**(changed["metadata"].get(place) or {}), **words}
        here.put(KINDS[plural], changed)
    here.settle()
    here.restart()
    here.wait(60)
    here.settle()
    here.run(phase="Failed")
    here.settle()
