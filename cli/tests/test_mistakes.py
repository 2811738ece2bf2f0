"""Typical mistakes of new users: each message has the fact and a next step, without a traceback."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

MANIFEST = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata:
  name: a
spec:
  minAvailble: 2
  tasks:
  - replicas: 1
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: a
          image: busybox
          resources:
            requests: {memory: 1g}
"""
DUPLICATE = ("job", "run", "there", "--", "true")


@pytest.fixture
def folder(strom: Any) -> None:
    """A job ``there``, files that are no job, and a directory without manifests."""
    strom(*DUPLICATE)
    Path("job.yaml").write_text(MANIFEST)
    Path("text.yaml").write_text("hello")
    Path("foreign.yaml").write_text("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n")
    Path("empty").mkdir()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "exit_code", "fact", "next_step"),
    [
        ("apply -f none.yaml", 1, "none.yaml: No such file", "specify a readable file"),
        ("apply -f empty", 1, "no manifest in this directory", "files that end in .yaml"),
        ("apply -f -", 1, "stdin: it contains no object", "specify a file"),
        ("apply -f text.yaml", 1, "not a Kubernetes object, but text", "apiVersion, kind"),
        ("apply -f foreign.yaml", 1, "did you mean batch.volcano.sh/v1alpha1 Job?", "correct"),
        ("apply -f job.yaml", 1, 'spec.minAvailble: unknown field; did you mean "minA', "correct"),
        ("apply -f job.yaml", 1, '64Mi" (did you mean "1Gi"?)', "correct"),
        ("job run job.yaml", 2, "job.yaml:1: this is a manifest", "strom job run -f job.yaml"),
        ("job run -f foreign.yaml", 1, "not batch/v1 Job", "apiVersion: batch.volcano.sh/"),
        ("job run -f job.yaml -q a", 2, "remove --queue", "strom job run --help"),
        ("job run empty/", 1, "empty/: Is a directory", "specify a readable script"),
        ("job run", 2, "a command, a script or a manifest is missing", "--help"),
        ("job run a echo hi", 2, "the command comes after two dashes: -- echo hi", "--help"),
        ("job exec there ls -la", 2, "the command comes after two dashes: -- ls -la", "--help"),
        ("job exec -n x there --lsit", 2, "No such option: --lsit", "--help"),
        ("job run a --partition x", 2, "No such option: --partition\n", "; write --queue"),
        ("job run a --mem 4G", 2, "No such option: --mem\n", "of sbatch; write --memory"),
        ("job submit a.sh -p x", 2, "No such option: -p\n", "-p is an option of sbatch; write --q"),
        ("job submit --wrap x", 2, "No such option: --wrap\n", "two dashes: strom job run NAME --"),
        ("job run a --begin now", 2, "No such option: --begin\n", "it has no counterpart"),
        ("job run a --quue x", 2, "; did you mean --queue", "strom job run --help"),
        ("job run a -q none -- x", 1, "queue 'none' does not exist; Queues that", "correct"),
        ("job run a -n none -- x", 1, "namespace 'none' not found", "correct --namespace"),
        ("job run a --memory 1g -- x", 2, "'1g' is not a quantity (did you mean 1Gi?)", "--help"),
        ("job run a --gpus a -- x", 2, "'a' is not a whole number", "--help"),
        ("job run a --array [3- -- x", 2, "'[3-' is not an index or range", "--help"),
        (" ".join(DUPLICATE), 1, "job default/there: exists already", "strom job delete there"),
        ("job cancel there[3-", 2, "'there[3-' is neither a job nor JOB[INDEXES]", "--help"),
        ("delete job there", 2, "by name: strom job delete NAME", "strom delete --help"),
        ("job get thre", 1, "not found; did you mean there?", "strom job list"),
        ("job list a b", 2, "unexpected arguments: a b", "--help"),
        ("job attach there", 2, "'-t': one of jupyter, tensorboard, code-server,", "--help"),
        ("job lst", 2, "No such command 'lst'; did you mean list", "strom job --help"),
        ("job list --state x", 2, "Invalid value for --state: 'x' is not a phase", "--help"),
        ("job run a -it -- bash", 2, "for -it: a job has no terminal; open one in", "--help"),
        ("--version", 2, "No such option: --version", "strom version"),
        ("job list --quue a", 2, "No such option: --quue; did you mean --queue", "--help"),
        ("history --format job,stat", 2, "gpu_efficiency; did you mean state?", "--help"),
        ("job list --server https://{server}", 3, "it does not speak TLS", "write http://"),
        ("job list --server {server}", 2, "not a URL (from --server)", "such as http://"),
        ("job list --server http://127.0.0.1:1", 3, "Connection refused", "strom up"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_the_fact_and_the_next_step(
    api_server: Any, strom: Any, command: str, exit_code: int, fact: str, next_step: str
) -> None:
    address = api_server.url.removeprefix("http://")
    refused = strom(*command.format(server=address).split(" "))
    assert refused.exit_code == exit_code
    assert fact in refused.stderr
    first, *_, last = refused.stderr.splitlines()
    assert first.startswith("strom: ")
    assert last.startswith("next: ")
    assert next_step in last
    assert "bug in strom" not in first
    assert refused.stdout == ""


class Unauthorized(BaseHTTPRequestHandler):
    """A server that accepts no token."""

    def do_GET(self) -> None:
        body = b'{"title":"Unauthorized","status":401,"detail":"the request has no token"}'
        self.send_response(401)
        self.send_header("content-type", "application/problem+json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Suppress the access log."""


def test_a_missing_or_wrong_token_has_a_next_step_with_and_without_a_cluster(strom: Any) -> None:
    """A user of ``strom up`` may have no kubectl, and a token of another server in STROM_TOKEN."""
    with HTTPServer(("127.0.0.1", 0), Unauthorized) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        refused = strom("job", "list", "--server", f"http://127.0.0.1:{server.server_port}")
        thread.join()
    assert (refused.exit_code, refused.stderr.splitlines()[0]) == (
        1,
        "strom: jobs: the request has no token",
    )
    assert "with strom up: run strom as the user who started it" in refused.stderr
    assert "on a cluster: export STROM_TOKEN=$(kubectl create token" in refused.stderr
