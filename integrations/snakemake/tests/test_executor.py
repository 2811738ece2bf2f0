"""``snakemake --executor strom`` on process nodes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from snakemake_executor_plugin_strom.manifest import WORKFLOW_LABEL, digest
from stromboli.client import Client

EXAMPLE = Path(__file__).parents[3] / "examples/squares.smk"
DEADLINE_S = 110
QUICK = ("--executor", "strom", "--jobs", "4", "--seconds-between-status-checks", "1")


def command(snakefile: Path, folder: Path, *more: str) -> Sequence[str]:
    return [
        *(sys.executable, "-m", "snakemake", "--snakefile", str(snakefile)),
        *("--directory", str(folder), "--latency-wait", "30", *QUICK, *more),
    ]


def run(snakefile: Path, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(snakefile, folder, *more),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )


def jobs_of(client: Client, folder: Path) -> list[str]:
    value = digest(str(folder))
    return [
        job.metadata.name
        for job in client.jobs("default")
        if (job.metadata.labels or {}).get(WORKFLOW_LABEL) == value
    ]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(240)
def test_the_example_finishes_and_leaves_no_job(client: Client, tmp_path: Path) -> None:
    ran = run(EXAMPLE, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "total.txt").read_text() == "14\n"
    assert jobs_of(client, tmp_path) == []


@pytest.mark.timeout(240)
def test_a_failed_job_fails_the_workflow_and_its_log_is_kept(
    client: Client, tmp_path: Path
) -> None:
    snakefile = tmp_path / "Snakefile"
    snakefile.write_text(
        'rule broken:\n    output: "never.txt"\n    shell: "echo the reason; exit 3"\n'
    )
    ran = run(snakefile, tmp_path)
    assert ran.returncode == 1
    assert "is Failed" in ran.stderr
    (log,) = (tmp_path / ".snakemake/strom_logs").glob("snakemake-broken-*.log")
    assert "exit code 1" in log.read_text()
    assert "the reason" in log.read_text()
    assert jobs_of(client, tmp_path) == []


SLOW = """
rule slow:
    output: "slow.txt"
    shell: "echo start >> starts; while [ ! -e go ]; do sleep 0.2; done; echo done > {output}"
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    (folder / "Snakefile").write_text(SLOW)
    # A runner of tests may ignore SIGINT, and its programs then do, too.
    words = ["env", "--default-signal=INT", *command(folder / "Snakefile", folder)]
    return subprocess.Popen(words)


@pytest.mark.timeout(300)
def test_a_killed_snakemake_that_starts_again_finds_its_running_job(
    client: Client, tmp_path: Path
) -> None:
    started = start(tmp_path)
    until((tmp_path / "starts").exists)
    started.kill()
    started.wait()
    before = jobs_of(client, tmp_path)
    assert len(before) == 1
    assert run(tmp_path / "Snakefile", tmp_path, "--unlock").returncode == 0
    words = command(tmp_path / "Snakefile", tmp_path)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as again:
        assert again.stderr is not None
        for line in again.stderr:
            if "is adopted" in line:
                break
        assert jobs_of(client, tmp_path) == before
        (tmp_path / "go").touch()
        again.stderr.read()
    assert again.returncode == 0
    assert (tmp_path / "starts").read_text() == "start\n"
    assert jobs_of(client, tmp_path) == []


@pytest.mark.timeout(240)
def test_an_interrupted_snakemake_leaves_no_job(client: Client, tmp_path: Path) -> None:
    started = start(tmp_path)
    until((tmp_path / "starts").exists)
    os.kill(started.pid, signal.SIGINT)
    assert started.wait() != 0
    assert jobs_of(client, tmp_path) == []
