"""The contract of ``stromboli.shared.cluster.pod_sessions``.

A class of an adapter provides the fixtures ``sessions``, with a running pod ``p`` in the namespace
``default`` whose only container ``main`` has the variable ``GREETING=hello``, the working directory
``/tmp`` and ``sh``, and ``listening_port``, a port of it that echoes a line.
"""

import asyncio

import msgspec
import pytest

from stromboli.shared import errors
from stromboli.shared.cluster.pod_sessions import ExecRequest, ExecSession, PodSessions
from stromboli.testkit import records

POD = "p"


class Written(msgspec.Struct):
    """The output of a command, and its exit code."""

    stdout: bytes
    stderr: bytes
    exit_code: int


async def run(
    sessions: PodSessions, *command: str, stdin: bytes | None = None, pod: str = POD
) -> Written:
    """Run a command to its end."""
    request = ExecRequest(command=command, container="main", stdin=stdin is not None)
    written = {"stdout": b"", "stderr": b""}
    async with (
        asyncio.timeout(records.DEADLINE_S),
        sessions.exec("default", pod, request) as session,
        asyncio.TaskGroup() as group,
    ):
        if stdin is not None:
            group.create_task(_feed(session, stdin))
        async for chunk in session.output():
            written[chunk.stream] += chunk.data
    return Written(written["stdout"], written["stderr"], session.exit_code())


async def _feed(session: ExecSession, stdin: bytes) -> None:
    await session.write(stdin)
    await session.close_stdin()


class PodSessionsContract:
    """Tests of the port's contract for commands."""

    async def test_both_streams_and_the_exit_code_come_back(self, sessions: PodSessions) -> None:
        written = await run(sessions, "sh", "-c", "echo out; echo err >&2; exit 7")
        assert written == Written(b"out\n", b"err\n", 7)

    async def test_success_is_exit_code_0(self, sessions: PodSessions) -> None:
        assert (await run(sessions, "true")).exit_code == 0

    async def test_environment_and_working_directory_are_those_of_the_container(
        self, sessions: PodSessions
    ) -> None:
        written = await run(sessions, "sh", "-c", "echo $GREETING; pwd")
        assert written.stdout == b"hello\n/tmp\n"

    async def test_the_command_reads_stdin_to_its_end(self, sessions: PodSessions) -> None:
        """Without a closed stdin ``cat`` would never end."""
        sent = b"line\n" * 50_000
        written = await run(sessions, "cat", stdin=sent)
        assert (len(written.stdout), written.exit_code) == (len(sent), 0)

    async def test_without_stdin_the_input_is_empty(self, sessions: PodSessions) -> None:
        assert await run(sessions, "cat") == Written(b"", b"", 0)

    async def test_all_output_before_the_end_arrives(self, sessions: PodSessions) -> None:
        written = await run(sessions, "sh", "-c", "head -c 3000000 /dev/zero; exit 3")
        assert (len(written.stdout), written.exit_code) == (3_000_000, 3)

    async def test_a_terminal_has_the_size_of_the_client(self, sessions: PodSessions) -> None:
        requested = ExecRequest(command=("sh",), container="main", stdin=True, tty=True)
        seen = b""
        async with (
            asyncio.timeout(records.DEADLINE_S),
            sessions.exec("default", POD, requested) as session,
        ):
            await session.resize(101, 37)
            await session.write(b"until stty size | grep -q '37 101'; do :; done; exit 4\n")
            async for chunk in session.output():
                seen += chunk.data
            assert session.exit_code() == 4
        assert b"stty" in seen

    async def test_a_command_that_does_not_exist_is_an_error(self, sessions: PodSessions) -> None:
        with pytest.raises(errors.InvalidError, match="no-such-command"):
            await run(sessions, "no-such-command")

    async def test_leaving_ends_the_session_before_its_command(self, sessions: PodSessions) -> None:
        requested = ExecRequest(command=("sh", "-c", "echo on; sleep 987"), container="main")
        async with (
            asyncio.timeout(records.DEADLINE_S),
            sessions.exec("default", POD, requested) as session,
        ):
            async for chunk in session.output():
                assert chunk.data == b"on\n"
                break

    async def test_a_pod_that_does_not_exist_is_not_found(self, sessions: PodSessions) -> None:
        with pytest.raises(errors.NotFoundError):
            await run(sessions, "true", pod="missing")

    async def test_a_port_is_reached(self, sessions: PodSessions, listening_port: int) -> None:
        async with (
            asyncio.timeout(records.DEADLINE_S),
            sessions.connect("default", POD, listening_port) as connection,
        ):
            await connection.write(b"ping\n")
            found = b""
            while b"\n" not in found and (data := await connection.read()):
                found += data
        assert found == b"ping\n"

    async def test_a_port_without_a_listener_is_an_error(self, sessions: PodSessions) -> None:
        with pytest.raises(errors.ExternalError):
            async with (
                asyncio.timeout(records.DEADLINE_S),
                sessions.connect("default", POD, 9) as connection,
            ):
                await connection.read()
