"""``strom job exec``: a command in a running container of a job, with kubectl and its rights.

Our server does not relay it: it would then be the server's account, not the caller's, that may run
commands in everybody's pods.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

import typer

from stromboli.cli import options
from stromboli.cli.commands.jobs import run
from stromboli.cli.errors import CommandError
from stromboli.cli.render import log_lines, pod_status
from stromboli.shared.api import kinds

KUBECTL = "kubectl"


def exec_in(
    ctx: typer.Context,
    name: options.JobName,
    task: options.Task = None,
    index: options.Index = None,
    container: options.Container = None,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Run a command in a running pod of a job: strom job exec train -- nvidia-smi

    The first running pod, or the one of --task and --index; without a command, a shell.
    """
    program = shutil.which(KUBECTL)
    if program is None:
        raise CommandError(
            f"job {namespace}/{name}",
            "a command in a pod needs kubectl and your own rights, and there is no kubectl here",
            "install kubectl, with a kubeconfig for the cluster",
        )
    if not _has_cluster_access(program):
        raise CommandError(
            f"job {namespace}/{name}",
            "a command in a pod needs kubectl and your own rights, and kubectl knows no cluster",
            "set KUBECONFIG; without a cluster (strom up) run what the pod runs on this machine",
        )
    with options.client(server) as client:
        job = client.decode(kinds.JOBS, client.job(namespace, name))
        pods = [pod_status.decode(raw) for raw in client.pods(namespace, name)]
    running = [pod for pod in pods if pod.status.phase == "Running"]
    found = log_lines.log_sources(log_lines.select_pods(running, task, index), name, container)
    if not found:
        raise CommandError(
            f"job {namespace}/{name}",
            log_lines.unknown_task(job, task) or "no such pod of it runs",
            f"see what there is: strom pod list -n {namespace} --job {name}",
        )
    words = kubectl_arguments(
        found[0], namespace, run.trailing_arguments(ctx) or ("sh",), is_terminal=sys.stdin.isatty()
    )
    raise typer.Exit(subprocess.run([program, *words], check=False).returncode)


def _has_cluster_access(kubectl: str) -> bool:
    """A kubeconfig, or the account of the pod that we are in."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return True
    words = [kubectl, "config", "view", "--output", "jsonpath={.clusters[*].name}"]
    asked = subprocess.run(words, check=False, capture_output=True, text=True)
    return asked.returncode != 0 or bool(asked.stdout.strip())


def kubectl_arguments(
    source: log_lines.Source, namespace: str, command: Sequence[str], *, is_terminal: bool
) -> list[str]:
    """What kubectl is called with. Pure."""
    terminal = ["--tty"] if is_terminal else []
    place = ["--namespace", namespace, source.pod, "--container", source.container]
    return ["exec", "--stdin", *terminal, *place, "--", *command]
