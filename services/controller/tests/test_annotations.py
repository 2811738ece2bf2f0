"""Annotations that the controller adds to objects of other owners remove nothing from them.

kubectl's copy of an object is an annotation, too, and snapshots do not contain it: an object
without annotations in the cache may have this one.
"""

import msgspec
import pytest

from services.controller.tests.support import patches
from stromboli.controller.core import commands, manifests
from stromboli.controller.core.pod_groups import pod_groups
from stromboli.shared import keys
from stromboli.shared.api import kinds, meta
from stromboli.testkit.builders import make_pod, make_pod_group

APPLIED = {keys.LAST_APPLIED: "{}"}
NOTED = {keys.DECISION: "d1"}


def annotations_after(obj: meta.Object, patch: commands.Patch) -> dict[str, str]:
    """The annotations of such an object that also has kubectl's annotation."""
    there = msgspec.to_builtins(obj)
    there["metadata"]["annotations"] = {**(obj.metadata.annotations or {}), **APPLIED}
    change = msgspec.json.decode(patch.patch)
    apply = patches.merged if patch.patch_type == "merge" else patches.json_patch
    found: dict[str, str] = apply(there, change)["metadata"]["annotations"]
    return found


@pytest.mark.parametrize("own", [None, {"a": "b"}], ids=["none seen", "others seen"])
def test_a_note_on_a_pod_leaves_all_others(own: dict[str, str] | None) -> None:
    pod = make_pod()
    pod = msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, annotations=own)
    )
    patch = manifests.annotated(kinds.PODS, pod, keys.DECISION, "d1")
    assert annotations_after(pod, patch) == {**(own or {}), **APPLIED, **NOTED}


@pytest.mark.parametrize("own", [None, {"a": "b"}], ids=["none seen", "others seen"])
def test_an_enqueued_gang_keeps_its_annotations(own: dict[str, str] | None) -> None:
    group = make_pod_group("g")
    group = msgspec.structs.replace(
        group, metadata=msgspec.structs.replace(group.metadata, annotations=own)
    )
    patch = pod_groups.enqueue(group, "d1")
    assert annotations_after(group, patch) == {**(own or {}), **APPLIED, **NOTED}
