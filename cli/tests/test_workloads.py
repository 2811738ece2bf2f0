"""Rules of ``strom flow``, ``strom template`` and ``strom cron``."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml

from stromboli.cli.render import claim_view, workload_view
from stromboli.shared.api import flow, kinds, meta, resource
from stromboli.testkit.builders import (
    NOON,
    make_cron,
    make_flow,
    make_job,
    make_task,
    make_template,
)

NOW = NOON + timedelta(minutes=5)
A = meta.ObjectMeta(name="a", namespace="default")
GPUS = resource.ResourceClaimSpec(
    devices=resource.DeviceClaim(
        requests=(
            resource.DeviceRequest(
                name="gpus",
                exactly=resource.ExactRequest(device_class_name="gpu.example.com", count=2),
            ),
        )
    )
)
WORDS: dict[str, tuple[kinds.Kind[Any], meta.Object]] = {
    "flow": (kinds.JOB_FLOWS, make_flow("a", {"one": [], "two": ["one"]})),
    "template": (kinds.JOB_TEMPLATES, make_template("a")),
    "cron": (kinds.CRON_JOBS, make_cron("a", "*/5 * * * *")),
    "claim": (kinds.RESOURCE_CLAIMS, resource.ResourceClaim(metadata=A, spec=GPUS)),
    "claimtemplate": (
        kinds.RESOURCE_CLAIM_TEMPLATES,
        resource.ResourceClaimTemplate(
            metadata=A, spec=resource.ResourceClaimTemplateSpec(spec=GPUS)
        ),
    ),
}


@pytest.fixture(params=WORDS)
def word(request: Any, api_server: Any) -> str:
    """One of the commands, with an object ``a`` to look at."""
    api_server.create(*WORDS[request.param])
    return str(request.param)


def title(word: str) -> str:
    kind = WORDS[word][0]
    return f"{kind.kind.lower()}.{kind.group}/a"


def test_list_shows_all_and_reports_an_empty_namespace(strom: Any, word: str) -> None:
    lines = strom(word, "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "a"]
    everywhere = strom(word, "list", "-A").stdout.splitlines()
    assert everywhere[1].split()[:2] == ["default", "a"]
    elsewhere = strom(word, "list", "-n", "other")
    assert (elsewhere.stdout, elsewhere.stderr) == ("", f"No {word}s found in namespace other.\n")
    assert strom(word, "list", "-l", "team=x").stderr == (
        f"No {word}s in namespace default match the filter (1 without it).\n"
    )
    assert strom(word, "list", "-A", "-l", "team=x").stderr == (
        f"No {word}s match the filter (1 without it).\n"
    )


def test_objects_for_programs_have_their_kind(strom: Any, word: str) -> None:
    kind = WORDS[word][0]
    assert strom(word, "list", "-o", "name").stdout == f"{title(word)}\n"
    assert json.loads(strom(word, "list", "-o", "json").stdout)["items"][0]["kind"] == kind.kind
    assert yaml.safe_load(strom(word, "get", "a", "-o", "yaml").stdout)["kind"] == kind.kind


def test_get_shows_the_status_and_the_latest_events(api_server: Any, strom: Any, word: str) -> None:
    kind = WORDS[word][0]
    uid = kinds.metadata_of(api_server.all(kind)[0]).uid
    for number in range(7):
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"e{9 - number}", "namespace": "default"},
            "involvedObject": {"uid": uid},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": f"reason {number}",
            "firstTimestamp": "2026-01-01T12:00:00Z",
        }
        api_server.create(kinds.EVENTS, event)
    shown = strom(word, "get", "a").stdout
    assert shown.splitlines()[0].split() == [word, "default/a"]
    assert [line.rpartition(" ")[2] for line in shown.splitlines()[-5:]] == list("23456")


def test_delete_deletes_and_reports_absent_objects(strom: Any, word: str) -> None:
    assert strom(word, "delete", "a").stdout == f"{title(word)} deleted\n"
    again = strom(word, "delete", "a")
    assert again.exit_code == 1
    assert again.stderr == (
        f"strom: {word} default/a: not found\n"
        f"next: list what exists: strom {word} list -n default\n"
    )
    assert strom(word, "get", "a").exit_code == 1


def test_a_cron_is_suspended_and_resumed(api_server: Any, strom: Any) -> None:
    api_server.create(*WORDS["cron"])
    said = strom("cron", "suspend", "a")
    assert (said.exit_code, said.stdout) == (0, "cronjob.batch.volcano.sh/a suspended\n")
    assert kinds.CRON_JOBS.decode(api_server.all(kinds.CRON_JOBS)[0]).spec.suspend
    assert strom("cron", "resume", "a").stdout == "cronjob.batch.volcano.sh/a resumed\n"
    stored = kinds.CRON_JOBS.decode(api_server.all(kinds.CRON_JOBS)[0])
    assert not stored.spec.suspend
    assert stored.spec.schedule == "*/5 * * * *"
    assert strom("cron", "suspend", "none").exit_code == 1


# What is seen


def test_a_flow_shows_each_job_in_the_order_of_the_manifest() -> None:
    story = flow.FlowJobStatus(
        name="f-b",
        state="Completed",
        start_timestamp=NOON,
        end_timestamp=NOON + timedelta(minutes=1),
        restart_count=2,
    )
    found = msgspec.structs.replace(
        make_flow("f", {"b": [], "a": ["b"]}),
        status=flow.JobFlowStatus(
            job_status_list=(story,), completed_jobs=("f-b",), state=flow.FlowState(phase="Running")
        ),
    )
    assert workload_view.flow_jobs(found, NOW) == [
        ("f-b", "Completed", "", "5m", "4m", "2"),
        ("f-a", "", "b", "-", "-", "0"),
    ]
    assert workload_view.flow_row(found, NOW) == ("f", "Running", "2", "0", "1", "0", "5m")


def test_a_template_shows_its_jobs() -> None:
    template = make_template("t", make_job(tasks=[make_task("a", 2), make_task("b", 3)]))
    assert workload_view.template_row(template, NOW) == ("t", "default", "2", "5", "0", "5m")
    alone = make_template("t", make_job(tasks=[make_task("a", 1)]))
    for each, pods in ((template, "5 in 2 tasks"), (alone, "1 in 1 task")):
        assert workload_view.template_facts(each, NOW)[2].split(None, 1) == ["pods", pods]


def test_a_cron_shows_when_the_next_job_is_due() -> None:
    cron = make_cron("c", "30 18 * * *", time_zone="Asia/Kathmandu")
    assert workload_view.next_time(cron, NOW) == datetime(2026, 1, 1, 12, 45, tzinfo=UTC)
    assert workload_view.cron_row(cron, NOW)[1:7] == (
        "30 18 * * *", "Asia/Kathmandu", "no", "0", "-", "40m",
    )  # fmt: skip
    suspended = make_cron("c", suspend=True)
    assert workload_view.next_time(suspended, NOW) is None
    assert "suspended" in "\n".join(workload_view.cron_facts(suspended, NOW))


@pytest.mark.parametrize("cron", [make_cron(schedule="x"), make_cron(time_zone="Mars/Base")])
def test_a_schedule_that_cannot_be_read_has_no_next_time(cron: flow.CronJob) -> None:
    assert workload_view.next_time(cron, NOW) is None


def test_a_claim_shows_its_devices_and_the_pods_that_reserve_it() -> None:
    device = resource.AllocatedDevice(request="gpus", driver="d", pool="node-1", device="gpu-3")
    allocation = resource.Allocation(devices=resource.AllocationDevices(results=(device,)))
    pod = resource.ClaimConsumer(resource="pods", name="train-worker-0")
    created = meta.ObjectMeta(name="c", namespace="default", creation_timestamp=NOON)
    claim = resource.ResourceClaim(metadata=created, spec=GPUS)
    assert claim_view.claim_row(claim, NOW) == ("c", "pending", "2 gpu.example.com", "", "", "5m")
    status = resource.ResourceClaimStatus(allocation=allocation, reserved_for=(pod,))
    reserved = msgspec.structs.replace(claim, status=status)
    assert claim_view.claim_row(reserved, NOW)[1:5] == (
        "allocated,reserved",
        "2 gpu.example.com",
        "node-1/gpu-3",
        "train-worker-0",
    )


def test_a_request_with_alternatives_names_each() -> None:
    either = resource.DeviceRequest(
        name="gpus",
        first_available=(
            resource.SubRequest(name="big", device_class_name="big", allocation_mode="All"),
            resource.SubRequest(name="small", device_class_name="small", count=2),
        ),
    )
    spec = resource.ResourceClaimSpec(devices=resource.DeviceClaim(requests=(either,)))
    assert claim_view.requests(spec) == "all big or 2 small"
