"""The debug tools that a job's annotation may request."""

import os
import pty
import subprocess

import pytest

from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.jobspec import debug_tools
from stromboli.shared.jobspec.validation import jobs
from stromboli.testkit.builders import make_job, make_task

JOB = make_job(tasks=[make_task("worker")])


def asking(text: str) -> batch.Job:
    return make_job(tasks=[make_task("worker")], annotations={keys.TOOLS: text})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("jupyter", "JSON is malformed"),
        ('[{"tol": "jupyter"}]', "Object contains unknown field `tol`"),
        ('[{"tool": "emacs"}]', "tool 'emacs' is unknown"),
        ('[{"tool": "jupyter"}, {"tool": "jupyter"}]', "tool 'jupyter' is duplicate"),
        ('[{"tool": "jupyter", "task": "ps"}]', "there is no task 'ps'"),
        ('[{"tool": "jupyter", "cpu": "much"}]', "cpu 'much' is not a positive quantity"),
        ('[{"tool": "jupyter", "memory": "0"}]', "memory '0' is not a positive quantity"),
        ('[{"tool": "jupyter", "idle": "soon"}]', "idle: 'soon' is not a duration"),
    ],
)
def test_an_invalid_annotation_is_rejected_and_never_executed(text: str, reason: str) -> None:
    job = asking(text)
    (violation,) = debug_tools.violations(job)
    assert reason in violation.reason
    assert (violation.path, debug_tools.requested_tools(job)) == (debug_tools.PATH, ())
    assert violation in list(jobs.validate_alone(job))
    assert violation in list(jobs.validate_update(job, JOB, {}))


def test_an_old_violation_does_not_block_changes_of_a_job() -> None:
    job = asking("nonsense")
    assert list(jobs.validate_update(job, job, {})) == []


def test_an_encoded_annotation_decodes_to_the_same_value() -> None:
    requests = (
        debug_tools.DebugToolRequest(tool="jupyter", task="worker"),
        debug_tools.DebugToolRequest(tool="terminal", image="i"),
    )
    job = asking(debug_tools.encode_annotation(requests))
    assert (debug_tools.requested_tools(job), list(debug_tools.violations(job))) == (requests, [])
    assert debug_tools.requested_tools(JOB) == ()


@pytest.mark.parametrize("name", debug_tools.TOOLS)
def test_every_tool_listens_on_the_port_that_is_shown(name: str) -> None:
    tool = debug_tools.TOOLS[name]
    assert any(str(tool.port) in word for word in tool.command)
    assert tool.image.rpartition(":")[2] not in ("", "latest")


def test_the_shell_of_a_terminal_ends_when_it_is_idle() -> None:
    """The `sh` of Debian, and of the published image, has no such limit; their bash has."""
    tool = debug_tools.TOOLS["terminal"]
    shell = tool.command[tool.command.index("sh") :]
    user, terminal = pty.openpty()
    idle = {**os.environ, tool.idle_variable: "1"}
    try:
        # Its exit code may be 1: that of a shell whose second is over while it reads its profile.
        subprocess.run(
            shell,
            check=False,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=idle,
            timeout=60,
        )
        assert b"timed out waiting for input" in os.read(user, 1 << 16)
    finally:
        os.close(terminal)
        os.close(user)
