"""The start of a scheduler imports what its first session needs, and no more."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from stromboli.scheduler import service
service.warm_up.run()
assert "stromboli.scheduler.core.plugins.predicates.device_selectors" in sys.modules
print(*sorted({"cel", "prompt_toolkit", "typer"} & sys.modules.keys()))
"""
SELECTORS = """
import sys
from stromboli.scheduler.core.cluster.auxiliary_objects import AuxiliaryObjects
from stromboli.shared.api import meta, resource

name = meta.ObjectMeta(name="n", namespace="default")
cel = resource.DeviceSelector(cel=resource.CelSelector(expression="true"))

def claim(*requests):
    devices = resource.DeviceClaim(requests=requests)
    return resource.ResourceClaim(metadata=name, spec=resource.ResourceClaimSpec(devices=devices))

known = AuxiliaryObjects()
known.put(resource.DeviceClass(metadata=name))
known.put(claim(resource.DeviceRequest(exactly=resource.ExactRequest())))
print("cel" in sys.modules)
known.put({selected})
print("cel" in sys.modules)
"""


def test_a_scheduler_without_device_selectors_does_not_import_their_language() -> None:
    """Its package imports a command line, too: 0.4 s of CPU at each start."""
    started = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (started.returncode, started.stdout) == (0, "\n"), started.stderr


@pytest.mark.parametrize(
    "selected",
    [
        "resource.DeviceClass(metadata=name, spec=resource.DeviceClassSpec(selectors=(cel,)))",
        "claim(resource.DeviceRequest(exactly=resource.ExactRequest(selectors=(cel,))))",
        "claim(resource.DeviceRequest(first_available=(resource.SubRequest(selectors=(cel,)),)))",
    ],
)
def test_the_language_of_device_selectors_is_imported_before_a_session(selected: str) -> None:
    """On a busy machine the import takes longer than a plugin may in a session: without
    `predicates`, which was left out, no pod was placed for ten minutes."""
    started = subprocess.run(
        [sys.executable, "-c", SELECTORS.format(selected=selected)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (started.returncode, started.stdout) == (0, "False\nTrue\n"), started.stderr
