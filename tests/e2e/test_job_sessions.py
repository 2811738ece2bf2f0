"""``strom job exec`` and ``port-forward``, and the Python client's ``exec``, over ``strom up``.

The container of the tests prints the port that it got and returns what it reads from it.
"""

import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stromboli.client import Client, errors
from tests.e2e.conftest import Embedded
from tests.e2e.support import polling

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")

WITHIN_S = 120.0
STROM = Path(sys.executable).with_name("strom")
ECHO = """
import socket
with socket.create_server(("0.0.0.0", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        connection.sendall(connection.recv(100))
        connection.close()
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A system with the running job ``a`` and the pending job ``big``."""
    system = Embedded(tmp_path_factory.mktemp("up"), "--process-nodes", "1")
    system.start()
    try:
        command = (sys.executable, "-c", ECHO)
        for words in (("a", "--env", "GREETING=hello", "--", *command), ("big", "--cpus", "4000")):
            done = run(system.url, "run", *words)
            assert done.returncode == 0, done.stderr
        with Client(system.url) as client:
            polling.until(
                lambda: [pod.status.phase for pod in client.pods("a")],
                lambda phases: phases == ["Running"],
                WITHIN_S,
            )
        yield system.url
    finally:
        system.stop()


def run(url: str, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Call ``strom job``."""
    return subprocess.run(
        [STROM, "job", *words],
        env=environment(url),
        input=stdin,
        capture_output=True,
        check=False,
        timeout=WITHIN_S,
    )


def environment(url: str) -> dict[str, str]:
    """Without any access to a cluster."""
    hidden = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**kept, "STROM_SERVER": url}


def test_a_command_has_the_exit_code_and_streams_of_the_remote_one(url: str) -> None:
    done = run(url, "exec", "a", "--", "sh", "-c", "echo $GREETING; echo err >&2; exit 9")
    assert (done.returncode, done.stdout, done.stderr) == (9, b"hello\n", b"err\n")


def test_with_i_the_command_reads_stdin(url: str) -> None:
    done = run(url, "exec", "a", "-i", "--", "wc", "-c", stdin=b"x" * 100_000)
    assert (done.returncode, done.stdout.strip()) == (0, b"100000")


def test_with_it_the_command_runs_on_a_terminal(url: str) -> None:
    """Keys are passed on unchanged, and the exit code comes back."""
    ours, theirs = pty.openpty()
    words = [
        str(STROM),
        "job",
        "exec",
        "a",
        "-it",
        "--",
        "sh",
        "-c",
        "test -t 0 && read x; exit $x",
    ]
    with subprocess.Popen(
        words, env=environment(url), stdin=theirs, stdout=theirs, stderr=theirs
    ) as called:
        os.close(theirs)
        os.write(ours, b"5\n")
        assert called.wait(WITHIN_S) == 5
    os.close(ours)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("exec", "big"), b"job default/big: it has no matching pod now"),
        (("exec", "a", "--task", "no"), b"job default/a: task 'no' not found; its tasks are "),
        (("exec", "a[7]"), b"job default/a: it has no matching pod now"),
        (("exec", "a", "-c", "no"), b"container 'no' not found"),
        (("exec", "none"), b"not found"),
        (("exec", "a", "--", "no-such-command"), b"no-such-command"),
        (("exec", "a", "-it", "--", "true"), b"stdin must be a terminal"),
        (("port-forward", "a", "x:80"), b"write PORT or LOCAL:PORT"),
    ],
)
def test_what_cannot_be_done_is_an_error_with_the_reason(
    url: str, words: tuple[str, ...], why: bytes
) -> None:
    done = run(url, *words)
    assert done.returncode in (1, 2)
    assert why in done.stderr
    assert b"next: " in done.stderr


def test_a_port_is_forwarded_until_interrupted(url: str) -> None:
    port = polling.until(lambda: run(url, "logs", "a").stdout.split()[-1:], bool, WITHIN_S)[0]
    words = [str(STROM), "job", "port-forward", "a", f":{port.decode()}"]
    with subprocess.Popen(words, env=environment(url), stdout=subprocess.PIPE) as called:
        assert called.stdout is not None
        local = int(called.stdout.readline().split()[0].rpartition(b":")[2])
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", local), timeout=WITHIN_S) as connection:
                connection.sendall(b"ping\n")
                assert connection.recv(100) == b"ping\n"
        called.send_signal(signal.SIGINT)
        assert called.wait(WITHIN_S) in (1, 130)


def test_an_interrupt_ends_open_connections_without_a_traceback(url: str) -> None:
    port = polling.until(lambda: run(url, "logs", "a").stdout.split()[-1:], bool, WITHIN_S)[0]
    words = [str(STROM), "job", "port-forward", "a", f":{port.decode()}"]
    with subprocess.Popen(
        words, env=environment(url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as called:
        assert called.stdout is not None
        local = int(called.stdout.readline().split()[0].rpartition(b":")[2])
        with socket.create_connection(("127.0.0.1", local), timeout=WITHIN_S) as connection:
            connection.sendall(b"ping\n")
            assert connection.recv(100) == b"ping\n"
            called.send_signal(signal.SIGINT)
            _, printed = called.communicate(timeout=WITHIN_S)
            assert connection.recv(100) == b""
    assert b"Traceback" not in printed


def test_a_signal_to_process_1_reaches_the_program_of_the_container(url: str) -> None:
    """As ``scancel --signal=USR1`` asks a program for a checkpoint. In a container of an image the
    program is process 1."""
    program = "trap 'echo checkpoint; exit 0' USR1; echo on; while :; do sleep 0.1; done"
    run(url, "run", "trained", "--cpus", "0.1", "--", "sh", "-c", program)
    polling.until(lambda: run(url, "logs", "trained").stdout, lambda log: b"on" in log, WITHIN_S)
    done = run(url, "exec", "trained", "--", "kill", "-USR1", "1")
    assert done.returncode == 0, done.stderr
    polling.until(
        lambda: run(url, "logs", "trained").stdout, lambda log: b"checkpoint" in log, WITHIN_S
    )
    assert run(url, "wait", "trained").returncode == 0


def test_the_python_client_runs_commands(url: str) -> None:
    with Client(url) as client:
        exec_result = client.exec("a", ["sh", "-c", "cat; exit 3"], stdin=b"in")
        assert (exec_result.exit_code, exec_result.stdout, exec_result.stderr) == (3, b"in", b"")
        with pytest.raises(errors.NoContainerError, match="no matching pod"):
            client.exec("big", ["true"])
        with pytest.raises(errors.SessionError, match="no-such-command"):
            client.exec("a", ["no-such-command"])
