"""A what-if question of a user on every kind of system: in one process, with every message delayed,
repeated and reordered, and on a real broker and API server."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import CPUS, NODES
from tests.e2e.support.rest_user import Document, User, job

pytestmark = pytest.mark.timeout(300)  # starting the real parts counts, on a busy machine, too
RUN_S = 600
"""Longer than the test: the nodes stay full."""


@pytest.fixture
def user(base_url: str) -> Iterator[User]:
    """A user who deletes their jobs at the end."""
    made = User(base_url)
    yield made
    for name in ("fills", "waits"):
        if name in made.names():
            made.delete(name)
    made.until(made.names, lambda names: not {"fills", "waits"} & set(names))
    made.close()


def gang(name: str, pods: int) -> Document:
    """A gang whose pods take a CPU each for ten minutes, as it says."""
    made = job(name, RUN_S, pods=pods, minAvailable=pods, runningEstimate=f"{RUN_S}s")
    (container,) = made["spec"]["tasks"][0]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "1"}}
    return made


def answer(user: User, *changes: str) -> Any:
    """What ``strom explain --if`` answers about the pending gang, once it can tell."""
    words = [word for change in changes for word in ("--if", change)]

    def ask() -> Any:
        try:
            return json.loads(user.strom("explain", "waits", *words, "--output", "json"))
        except subprocess.CalledProcessError as error:
            if "ask again" not in error.stderr:
                raise
            # On a busy machine the scheduler needs more time than the question waits for it.
            return {"cannotTell": error.stderr}

    return user.until(ask, lambda it: not it.get("cannotTell"))


def test_a_what_if_question_is_answered_and_changes_nothing(user: User) -> None:
    """The pending gang would start at once on more nodes or with fewer pods, and never with more
    pods than the cluster has CPUs."""
    user.submit(gang("fills", NODES * CPUS))
    user.comes_to("fills", "Running")
    user.submit(gang("waits", CPUS))
    user.until(lambda: user.get("waits", "/explanation"), lambda it: it.get("explained"))
    more = answer(user, "nodes=+1")
    assert more["present"]["p90"] > more["at"]
    assert more["changed"]["p90"] == more["at"]
    never = answer(user, f"replicas={NODES * CPUS + 1}", f"minAvailable={NODES * CPUS + 1}")
    assert never["changed"]["answer"] == "can-never-fit"
    assert user.get("waits")["spec"]["minAvailable"] == CPUS
    assert len(user.nodes()) == NODES
    assert user.phase("waits") == "Pending"
