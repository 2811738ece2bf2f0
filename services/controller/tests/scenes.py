"""How far a job has come when a rule is looked at."""

from services.controller.tests.world import World
from stromboli.shared import envelope, topics
from stromboli.shared.api import batch, kinds
from stromboli.shared.messages import cluster as messages
from stromboli.testkit.builders import make_job, make_task

J = "default/j1"


def submitted(job: batch.Job) -> World:
    """Its PodGroup waits."""
    world = World()
    world.submit(job)
    world.settle()
    return world


def enqueued(job: batch.Job) -> World:
    """Its pods are made."""
    world = submitted(job)
    world.enqueue(world.group_key())
    world.settle()
    return world


def running(job: batch.Job) -> World:
    """Its pods run."""
    world = enqueued(job)
    world.run()
    world.settle()
    return world


def finish(world: World, *ends: str) -> None:
    """Every pod by name comes to a phase."""
    for pod, end in zip(world.pods(), ends, strict=True):
        world.change_pod(pod.metadata.key, end)
    world.settle()


def fail(world: World, name: str, exit_code: int = 1, end: str = "Error") -> None:
    """A pod's container ends badly."""
    world.change_pod(f"default/{name}", "Failed", exit_code=exit_code, end=end)
    world.settle()


def evict(world: World, name: str) -> None:
    """Somebody deletes a pod, and it goes."""
    world.delete(kinds.PODS, f"default/{name}")
    world.settle()
    world.reap(f"default/{name}")
    world.settle()


def reap_all(world: World) -> None:
    """Pods that were going are gone."""
    for pod in world.pods():
        if pod.metadata.deletion_timestamp is not None:
            world.reap(pod.metadata.key)
    world.settle()


def go_on(world: World) -> None:
    """What was going is gone, the scheduler lets the job's PodGroup in, new pods run."""
    reap_all(world)
    if ("podgroups", world.group_key()) in world.objects:
        world.enqueue(world.group_key())
        world.settle()
    waiting = [pod for pod in world.pods() if pod.status.phase == "Pending"]
    if waiting:
        world.run(*[pod.metadata.name for pod in waiting])
    world.settle()


def restarted(action: str = "RestartJob", retries: int = 3) -> World:
    """One of two pods failed, and a policy names an action for that."""
    policy = batch.LifecyclePolicy(event="PodFailed", action=action)
    tasks = [make_task(replicas=2)]
    world = running(make_job(tasks=tasks, policies=[policy], max_retry=retries))
    finish(world, "Failed", "Running")
    return world


def rivals_seen(world: World, *found: messages.Rival) -> envelope.Draft:
    """The monitor says who else acts."""
    seen = messages.RivalsSeen(rivals=found)
    return envelope.Draft(topic=topics.SYNC, key=messages.RIVALS_KEY, message=seen, time=world.now)
