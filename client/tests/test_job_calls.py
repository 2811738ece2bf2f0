"""Jobs in one line, their logs, Events, data sets and actions, in both clients."""

import time
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stromboli.client import AsyncClient, Client, errors, job
from stromboli.client.job_logs import LogLine
from stromboli.client.operations import node_calls
from stromboli.shared.api import batch
from stromboli.testkit import records


def test_a_job_in_one_line_has_environment_time_gpus_and_indexes() -> None:
    made = job(
        "sweep",
        image="busybox",
        gpus=2,
        env={"SEED": "1"},
        working_dir="/work",
        time_limit=timedelta(hours=2),
        array="0-99%10",
        priority_class="high",
    )
    spec = made.spec
    assert spec.array is not None
    assert (spec.array.indexes, spec.tasks[0].replicas, spec.min_available) == ("0-99", 10, 1)
    assert (spec.active_deadline_seconds, spec.running_estimate) == (7200, "7200s")
    assert spec.priority_class_name == "high"
    (container,) = msgspec.json.decode(spec.tasks[0].template.spec)["containers"]
    devices = {"nvidia.com/gpu": "2"}
    assert container["resources"] == {"requests": devices, "limits": devices}
    assert container["env"] == [{"name": "SEED", "value": "1"}]
    assert container["workingDir"] == "/work"


@pytest.mark.parametrize("wrong", [{"array": "9-1"}, {"array": "0-9%x"}, {"array": "0-9%0"}])
def test_an_invalid_array_is_reported_before_anything_is_sent(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="array"):
        job("a", image="i", **wrong)
    with pytest.raises(errors.InvalidArgumentError, match="leave out replicas"):
        job("a", image="i", array="0-9", replicas=2)


def test_logs_of_selected_indexes_come_line_by_line(process_url: str) -> None:
    text = "echo index $STROM_ARRAY_INDEX; printf end"
    with Client(process_url) as client:
        made = job("lines", image="none", command=["sh", "-c", text], array="0-2")
        client.submit(made)
        assert client.wait("lines", timeout_s=records.DEADLINE_S).status.state.phase == "Completed"
        log_lines = list(client.logs("lines", indexes=[1]))
        assert log_lines == [
            LogLine("lines-main-1", "main", "index 1"), LogLine("lines-main-1", "main", "end"),
        ]  # fmt: skip
        assert len(list(client.logs("lines", task="main", tail_lines=1))) == 3
        deadline = time.monotonic() + records.DEADLINE_S
        while "Completed" not in {event.reason for event in client.events("lines")}:
            assert time.monotonic() < deadline  # Events are written behind everything else
        client.delete("lines")


async def test_a_job_is_changed_suspended_and_resumed(url: str) -> None:
    async with AsyncClient(url) as client:
        await client.submit(job("held", image="busybox", requests={"cpu": "1"}))
        changed = await client.change("held", replicas={"main": 2})
        assert (changed.spec.tasks[0].replicas, changed.spec.min_available) == (2, 2)
        assert (await client.suspend("held")).action == "AbortJob"
        await client.wait("held", phases=["Aborted"], timeout_s=records.DEADLINE_S)
        assert [line async for line in client.logs("held")] == []
        assert (await client.resume("held")).action == "ResumeJob"
        with pytest.raises(errors.NotFoundError):
            await client.restart("absent")
        await client.delete("held")


def with_data(name: str, *uris: str) -> batch.Job:
    """A job that names data sets."""
    return job(
        name,
        image="busybox",
        requests={"cpu": "1"},
        data=[
            batch.DataSet(name=f"d{at}", uri=uri, mount_path=f"/d{at}", size="5G")
            for at, uri in enumerate(uris)
        ],
    )


async def test_both_clients_list_the_data_sets_that_jobs_name(url: str) -> None:
    """No cache has them, so they have no copies."""
    uris = [f"s3://client-tests/{number}" for number in range(3)]
    async with AsyncClient(url) as client:
        await client.submit(with_data("reads", *uris))
        requested = node_calls.data_sets("default", uri="s3://client-tests/", limit=2)
        page = await client.send(requested)
        requested = node_calls.data_sets(
            "default", uri="s3://client-tests/", limit=2, continue_=page.continue_
        )
        rest = await client.send(requested)
        copies = (*page.items, *rest.items)
        assert sorted(each.uri for each in copies) == uris
        assert {(each.bytes, each.nodes) for each in copies} == {(5 * 10**9, ())}
        assert (len(page.items), rest.continue_) == (2, "")
        assert (await client.send(node_calls.data_sets())).items == ()
        listed = [each async for each in client.data_sets("default", uri="s3://client-tests/")]
        assert listed == list(copies)
        await client.delete("reads")


def test_the_blocking_client_lists_data_sets_of_a_node(url: str) -> None:
    with Client(url) as client:
        page = client.send(node_calls.data_sets(node="absent", key="0" * 32))
        assert (page.items, page.continue_) == ((), "")
        assert list(client.data_sets(node="absent")) == []
