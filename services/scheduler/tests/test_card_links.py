"""The plugin deviceshare: GPUs that are linked well, and what is kept between sessions."""

from services.scheduler.tests.support import default_sessions, numa_machines, sessions
from services.scheduler.tests.test_deviceshare import gang, given_to, tier, vgpu_node, wants
from stromboli.scheduler.core import plugins, simulate
from stromboli.scheduler.core.framework import opening
from stromboli.shared.api import core, meta
from stromboli.testkit import builders

CUBE = numa_machines.observed(nvlinks=numa_machines.CUBE_MESH)


def linked(*more: meta.Object, **pods: tuple[core.Container, int]) -> dict[str, list[str]]:
    """Pod -> numbers of its GPUs, on a cube mesh of eight."""
    node = vgpu_node("n1", *(f"{numa_machines.uuid(at)},8000" for at in range(8)))
    jobs = [
        each
        for name, (container, count) in pods.items()
        for each in gang(name, container, pods=count)
    ]
    how = tier(SchedulePolicy="links", ScheduleWeight=1)
    decided = default_sessions.closed(node, CUBE, *more, *jobs, tier=how)
    return {
        pod: sorted(part.split(",")[0][-1] for part in text.split(":") if part)
        for pod, text in given_to(decided).items()
    }


def test_gpus_of_one_container_have_good_links() -> None:
    """Four are a quad; two of the other one have two links."""
    found = linked(a=(wants(number=4), 1), b=(wants(number=2), 1))
    assert found == {"a-0": ["0", "1", "2", "3"], "b-0": ["4", "7"]}


def test_a_part_comes_from_a_gpu_in_use() -> None:
    """The first breaks the GPU that the others miss least, the second joins it."""
    found = linked(a=(wants(memory=1000), 2))
    assert found["a-0"] == found["a-1"]


def test_memory_is_counted_in_the_units_of_its_device_plugin() -> None:
    """Eight units of 1000 MiB."""
    pods = gang("g", wants(memory=8))
    decided = default_sessions.closed(
        vgpu_node("n1", "A,8000"), *pods, tier=tier(GPUMemoryFactor=1000)
    )
    assert given_to(decided) == {"g-0": "A,NVIDIA,8000,0:"}


def test_what_is_kept_of_a_node_is_what_objects_say_and_not_what_sessions_did() -> None:
    """A second session has the same GPUs free, and after a change of the node others."""
    objects = [builders.make_queue(), vgpu_node("n1", "A,8000"), *gang("g", wants(memory=8000))]
    how, cluster = sessions.configured(tier()), sessions.given(objects)
    model, _ = opening.build_model(how, cluster)

    def placed() -> dict[str, str]:
        ssn = opening.open_on_model(model, how, cluster, plugins.find)
        simulate.run_actions(ssn)
        found = given_to(ssn)
        ssn.rollback()
        return found

    assert placed() == placed() == {"g-0": "A,NVIDIA,8000,0:"}
    model.put_node(vgpu_node("n1", "B,8000"))
    assert placed() == {"g-0": "B,NVIDIA,8000,0:"}
