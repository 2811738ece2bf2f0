"""Labels and annotations are anybody's to write: nothing that stands there may stop the controller,
since then it would stop for everybody."""

import copy

import pytest

from services.controller.tests import test_stray_pods
from services.controller.tests.world import KINDS, World
from stromboli.shared import keys
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


def world() -> World:
    """A job with plugins, one of a flow, and a pod of others, all running."""
    made = World()
    made.submit(builders.make_job(plugins={"env": (), "svc": (), "ssh": ()}))
    made.submit(builders.make_template("a", builders.make_job()))
    made.submit(builders.make_flow("f", {"a": []}))
    test_stray_pods.add(made, "web-a")
    made.settle()
    for key in (made.group_key(), made.group_key("default/f-a"), test_stray_pods.G):
        made.enqueue(key)
    made.settle()
    made.run()
    made.settle()
    return made


@pytest.mark.parametrize("place", ["annotations", "labels"])
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:20] or "empty")
def test_whatever_is_written_there_the_controller_goes_on(text: str, place: str) -> None:
    here = world()
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
