"""Rules of ``strom job attach`` and ``detach``."""

import json
from typing import Any

import msgspec
import pytest

from stromboli.cli.commands.jobs import job_attach
from stromboli.cli.render import pod_status
from stromboli.shared import keys
from stromboli.shared.jobspec import debug_tools


def wanted(api_server: Any) -> list[Any]:
    text = api_server.job("a").metadata.annotation(keys.TOOLS)
    found: list[Any] = json.loads(text) if text else []
    return found


@pytest.fixture
def job(strom: Any) -> None:
    """A job with nothing beside it."""
    strom("job", "run", "a")


@pytest.mark.usefixtures("job")
def test_attach_asks_by_an_annotation_and_waits_for_the_pod(api_server: Any, strom: Any) -> None:
    waited = strom("job", "attach", "a", "--tool", "jupyter", "--timeout", "0.1s")
    assert waited.exit_code == 124
    assert "jupyter is not ready after 0.1 s: no pod of the job runs yet" in waited.stderr
    assert wanted(api_server) == [{"tool": "jupyter"}]
    api_server.start_tool("a", "jupyter")
    there = strom("job", "attach", "a", "--tool", "jupyter")
    assert (there.exit_code, there.stderr) == (0, "")
    first, *lines = there.stdout.splitlines()
    assert first == "jupyter of default/a is ready on node."
    assert lines == [
        "  connect    strom job port-forward a -n default --tool jupyter",
        "             then open http://127.0.0.1:8888",
        "  token      strom job exec a -n default --tool jupyter -- printenv STROM_TOOL_TOKEN",
        "  stop       strom job detach a -n default --tool jupyter",
    ]


@pytest.mark.usefixtures("job")
def test_attach_reports_what_it_waits_for(api_server: Any, strom: Any) -> None:
    waited = strom("job", "attach", "a", "--tool", "jupyter", "--timeout", "0.1s")
    assert waited.stderr.startswith("jupyter: no pod of the job runs yet\n")


@pytest.mark.usefixtures("job")
def test_attach_reports_why_the_pod_of_the_tool_is_absent(api_server: Any, strom: Any) -> None:
    """The job runs, so it is not the job that the tool waits for."""
    api_server.set_status("a", "Running")
    waited = strom("job", "attach", "a", "--tool", "jupyter", "--timeout", "0.1s")
    assert waited.stderr.startswith("jupyter: its pod is not created yet\n")
    api_server.annotate("a", **{keys.HELD: "FailedCreate: exceeded quota: q"})
    waited = strom("job", "attach", "a", "--tool", "jupyter", "--timeout", "0.1s")
    assert waited.stderr.startswith("jupyter: its pod: FailedCreate: exceeded quota: q\n")


def test_a_tool_that_cannot_start_reports_the_reason() -> None:
    crashed = {
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 128, "message": "exec ttyd: No such file"}},
    }
    pod = {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"name": "c", **crashed}]}}
    decoded = pod_status.decode(msgspec.json.encode(pod))
    assert job_attach.tool_state(decoded) == "its pod is CrashLoopBackOff: exec ttyd: No such file"


@pytest.mark.usefixtures("job")
def test_detach_removes_the_requested_tool(api_server: Any, strom: Any) -> None:
    for tool in ("jupyter", "terminal"):
        strom("job", "attach", "a", "--tool", tool, "--timeout", "0.1s")
    assert "tools     jupyter, terminal" in strom("job", "view", "a").stdout
    gone = strom("job", "detach", "a", "--tool", "jupyter")
    assert (gone.exit_code, gone.stdout.split()[-1]) == (0, "jupyter")
    assert wanted(api_server) == [{"tool": "terminal"}]
    absent = strom("job", "detach", "a", "--tool", "jupyter")
    assert absent.exit_code == 1
    assert "it has no jupyter\nnext: debug tools of the job: terminal" in absent.stderr
    assert strom("job", "detach", "a").exit_code == 0
    assert wanted(api_server) == []


@pytest.mark.usefixtures("job")
def test_what_cannot_be_is_refused_with_the_reason(api_server: Any, strom: Any) -> None:
    assert strom("job", "attach", "a", "--tool", "emacs").exit_code == 2
    refused = strom("job", "attach", "a", "--tool", "jupyter", "--task", "none")
    assert refused.exit_code == 1
    assert "task 'none'" in refused.stderr
    api_server.set_status("a", "Completed")
    over = strom("job", "attach", "a", "--tool", "jupyter")
    assert over.exit_code == 1
    assert "it is Completed, and debug tools need a running job" in over.stderr
    assert wanted(api_server) == []


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("exec", "a", "--tool", "jupyter", "--", "true"), "debug tool jupyter is not attached"),
        (("exec", "a", "--tool", "jupyter", "--index", "0", "--", "true"), "a debug tool has one"),
        (("port-forward", "a"), "[LOCAL:]REMOTE: it is missing"),
        (("port-forward", "a", "--tool", "jupyter"), "debug tool jupyter is not attached"),
    ],
)
def test_a_session_with_an_absent_tool_is_refused(
    strom: Any, words: tuple[str, ...], why: str
) -> None:
    refused = strom("job", *words)
    assert refused.exit_code in (1, 2)
    assert why in refused.stderr


@pytest.mark.usefixtures("job")
def test_attach_passes_on_what_the_tool_requests(api_server: Any, strom: Any) -> None:
    requested = ("--cpu", "2", "--memory", "8Gi", "--idle", "30m", "--timeout", "0.1s")
    strom("job", "attach", "a", "--tool", "jupyter", *requested)
    expected = {"tool": "jupyter", "cpu": "2", "memory": "8Gi", "idle": "30m"}
    assert wanted(api_server) == [expected]


@pytest.mark.usefixtures("job")
def test_attach_ends_where_the_program_of_the_tool_does_not_exist(
    api_server: Any, strom: Any
) -> None:
    """On process nodes the machine has no ttyd, and the pod is restarted indefinitely."""
    api_server.start_tool("a", "terminal")
    ended = {"reason": "StartError", "exitCode": 128, "message": "program 'ttyd' not found"}
    waiting = {"reason": "CrashLoopBackOff"}
    container = {"name": "terminal", "state": {"waiting": waiting}, "restartCount": 3}
    status = {**container, "lastState": {"terminated": ended}}
    condition = {"type": "Ready", "status": "False"}
    api_server.set_pod_status("a-tool-terminal", containerStatuses=[status], conditions=[condition])
    refused = strom("job", "attach", "a", "--tool", "terminal", "--timeout", "60s")
    assert refused.exit_code == 1
    assert "terminal cannot start: its pod is CrashLoopBackOff: program 'ttyd'" in refused.stderr
    assert "strom job detach a" in refused.stderr


def test_a_tool_requested_again_replaces_the_first() -> None:
    there = (
        debug_tools.DebugToolRequest(tool="jupyter"),
        debug_tools.DebugToolRequest(tool="terminal"),
    )
    other = debug_tools.DebugToolRequest(tool="jupyter", image="ours")
    assert job_attach.with_tool(there, other) == (there[1], other)
    assert job_attach.without_tool(there, "terminal") == there[:1]
    assert job_attach.without_tool(there, None) == ()


def test_a_tool_without_a_token_names_none() -> None:
    assert not any(
        "token" in line for line in job_attach.access_instructions("n", "a", "tensorboard", "n1")
    )


def test_the_command_knows_every_tool() -> None:
    assert [each.value for each in job_attach.ToolName] == list(debug_tools.TOOLS)
