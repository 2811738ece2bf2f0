"""``strom up``: what it refuses before anything starts."""

from pathlib import Path
from typing import Any

import pytest
import typer

from stromboli.cli.errors import CommandError
from stromboli.embedded import system, up
from stromboli.embedded.commands.up import up as start
from stromboli.embedded.nodes import simulated
from stromboli.embedded.processes import machine


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ('actions: "enqueue, allocte"\n', "allocte"),
        ("actions: [\n", "bad.yaml"),
        ("tiers:\n- plugins:\n  - name: gnag\n", "gnag"),
    ],
)
def test_a_configuration_that_is_invalid_is_refused_before_anything_starts(
    tmp_path: Path, text: str, detail: str
) -> None:
    """Otherwise the scheduler would wait for a better file, and the user for the scheduler."""
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    state = tmp_path / "state"
    with pytest.raises(CommandError) as refused:
        start(config=file, state=state)
    shown = "\n".join((str(refused.value), *refused.value.details))
    assert detail in shown
    assert not state.exists()


@pytest.mark.parametrize(
    ("options", "detail"),
    [
        ({"data_origins": ["data.example.org"]}, "allowed origin 'data.example.org'"),
        ({"data_origins": ["https://ann:secret@a.org"]}, "the URI has a user name"),
        ({"data_capacity": "20 gigs"}, "20 gigs"),
        ({"isolate": True}, "--isolate has no effect without --process-nodes"),
        ({"process_nodes": 1, "visible": [Path("/usr")]}, "no effect without --isolate"),
        (
            {"process_nodes": 1, "isolate": True, "visible": [Path("/no/such")]},
            "--visible /no/such: no such file or folder",
        ),
    ],
)
def test_options_that_are_invalid_are_refused_before_anything_starts(
    tmp_path: Path, options: dict[str, Any], detail: str
) -> None:
    state = tmp_path / "state"
    with pytest.raises(typer.BadParameter, match=detail):
        start(state=state, **options)
    assert not state.exists()


@pytest.mark.parametrize("option", ["cpu", "memory", "data_capacity"])
def test_an_invalid_quantity_is_refused_with_its_option(tmp_path: Path, option: str) -> None:
    options: dict[str, Any] = {option: "lots"}
    with pytest.raises(typer.BadParameter, match="'lots' is not a quantity") as refused:
        start(state=tmp_path / "state", **options)
    assert refused.value.param_hint == f"--{option.replace('_', '-')}"


def test_a_state_folder_that_cannot_be_made_is_named_with_the_next_step(tmp_path: Path) -> None:
    """Such as below a file, on a read-only file system or in a folder of another user."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError) as refused:
        start(state=tmp_path / "file" / "state")
    assert refused.value.lines() == [
        f"strom: up: {tmp_path}/file/state: Not a directory",
        "next: set another folder: strom up --state FOLDER",
    ]


def test_the_sizes_of_the_nodes_are_printed() -> None:
    """A pod that requests more than a node has never starts."""
    options = system.Options(
        state=Path("unused"),
        nodes=tuple(simulated.node_documents(2, cpu="4", memory="8Gi", gpus=1)),
        process_nodes=tuple(machine.node_documents(1, {"cpu": 2000, "memory": 2**30})),
    )
    assert up.node_sizes(options) == [
        "2 simulated, each with cpu 4, memory 8Gi, nvidia.com/gpu 1",
        "1 process, each with cpu 2, memory 1Gi",
    ]


@pytest.mark.parametrize(
    ("nodes", "cpu", "command"),
    [
        (4, "8", "strom job run hello --replicas 4 --run-seconds 2"),
        (3, "1", "strom job run hello --replicas 3 --run-seconds 2"),
        (2, "500m", "strom job run hello --cpus 500m --run-seconds 2"),
        (0, "8", "strom job run hello --cpus 1 --run-seconds 2"),
    ],
)
def test_the_suggested_first_job_fits_the_nodes(nodes: int, cpu: str, command: str) -> None:
    """A gang that is larger than the machine would be pending indefinitely."""
    options = system.Options(
        state=Path("unused"), nodes=tuple(simulated.node_documents(nodes, cpu=cpu, memory="8Gi"))
    )
    assert up.first_job(options) == command


def test_the_suggested_first_job_fits_process_nodes_that_share_two_cores() -> None:
    nodes = machine.node_documents(2, {"cpu": 2000, "memory": 2**30})
    options = system.Options(state=Path("unused"), process_nodes=tuple(nodes))
    assert up.first_job(options) == "strom job run hello --replicas 2 -- echo hello"
