"""``strom job exec``: run a command in a container of a job, with kubectl and the user's rights.

The server does not relay it: the server's account would then need the right to run commands in
all pods.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

import typer

from stromboli.cli import options, trailing_command
from stromboli.cli.errors import CommandError
from stromboli.cli.job_specs import job_reference
from stromboli.cli.render import log_lines, pod_status
from stromboli.shared.api import kinds

KUBECTL = "kubectl"
COMMAND_CLASS = trailing_command.CommandWithTrailingArguments


def exec_in(
    ctx: typer.Context,
    name: options.JobName,
    task: options.Task = None,
    index: options.Index = None,
    container: options.Container = None,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Run a command in a running pod of a job.

    strom job exec train -- nvidia-smi

    The pod is the first running one, or the one of --task and --index, or of JOB[7]. Without a
    command, a shell is started.
    """
    name, indexes = job_reference.split(name, index)
    program = shutil.which(KUBECTL)
    if program is None:
        raise CommandError(
            f"job {namespace}/{name}",
            "exec uses kubectl with your own rights, and kubectl is not installed",
            "install kubectl, with a kubeconfig for the cluster",
        )
    if not _has_cluster_access(program):
        raise CommandError(
            f"job {namespace}/{name}",
            "exec uses kubectl with your own rights, and no cluster is configured",
            "set KUBECONFIG; pods of strom up run on this machine, so run the command here",
        )
    with options.client(server) as client:
        job = client.decode(kinds.JOBS, client.job(namespace, name))
        pods = [pod_status.decode(raw) for raw in client.pods(namespace, name)]
    running = [pod for pod in pods if pod.status.phase == "Running"]
    found = log_lines.log_sources(log_lines.select_pods(running, task, indexes), name, container)
    if not found:
        raise CommandError(
            f"job {namespace}/{name}",
            log_lines.unknown_task(job, task) or "no matching pod is running",
            f"list its pods: strom pod list -n {namespace} --job {name}",
        )
    words = kubectl_arguments(
        found[0],
        namespace,
        trailing_command.trailing_arguments(ctx) or ("sh",),
        is_terminal=sys.stdin.isatty(),
    )
    raise typer.Exit(subprocess.run([program, *words], check=False).returncode)


def _has_cluster_access(kubectl: str) -> bool:
    """Whether a kubeconfig names a cluster, or this process runs in a pod."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return True
    words = [kubectl, "config", "view", "--output", "jsonpath={.clusters[*].name}"]
    asked = subprocess.run(words, check=False, capture_output=True, text=True)
    return asked.returncode != 0 or bool(asked.stdout.strip())


def kubectl_arguments(
    source: log_lines.Source, namespace: str, command: Sequence[str], *, is_terminal: bool
) -> list[str]:
    """The arguments of kubectl. Pure."""
    terminal = ["--tty"] if is_terminal else []
    place = ["--namespace", namespace, source.pod, "--container", source.container]
    return ["exec", "--stdin", *terminal, *place, "--", *command]
