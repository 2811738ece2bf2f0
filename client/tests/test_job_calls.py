"""Jobs in one line, their logs, Events and actions, in both clients."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stromboli.client import AsyncClient, Client, errors, job
from stromboli.client.job_logs import LogLine


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
        assert client.wait("lines", timeout_s=60).status.state.phase == "Completed"
        found = list(client.logs("lines", indexes=[1]))
        assert found == [
            LogLine("lines-main-1", "main", "index 1"), LogLine("lines-main-1", "main", "end"),
        ]  # fmt: skip
        assert len(list(client.logs("lines", task="main", tail_lines=1))) == 3
        assert "Completed" in {event.reason for event in client.events("lines")}
        client.delete("lines")


async def test_a_job_is_changed_suspended_and_resumed(url: str) -> None:
    async with AsyncClient(url) as client:
        await client.submit(job("held", image="busybox", requests={"cpu": "1"}))
        changed = await client.change("held", replicas={"main": 2})
        assert (changed.spec.tasks[0].replicas, changed.spec.min_available) == (2, 2)
        assert (await client.suspend("held")).action == "AbortJob"
        await client.wait("held", phases=["Aborted"], timeout_s=30)
        assert [line async for line in client.logs("held")] == []
        assert (await client.resume("held")).action == "ResumeJob"
        with pytest.raises(errors.NotFoundError):
            await client.restart("absent")
        await client.delete("held")
