"""Comparisons of configurations: workloads of a seed, intervals, and what is printed."""

import json
import statistics
from pathlib import Path

import pytest
from typer.testing import CliRunner

from embedded.tests.simulations import job
from stromboli.embedded.commands import simulate
from stromboli.embedded.simulation.core import comparison, workload

PACK = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n"
ORDERED = "actions: allocate\ntiers:\n- plugins:\n  - name: priority\n  - name: predicates\n"


def test_an_interval_is_that_of_student() -> None:
    """Ten values with mean 5.5 and standard deviation 3.0277: t(9) = 2.262."""
    interval = comparison.interval([float(at) for at in range(1, 11)])
    assert interval.mean == 5.5
    half = 2.262 * statistics.stdev(range(1, 11)) / 10**0.5
    assert interval.half_width == pytest.approx(half)
    assert comparison.interval([3.0]) == comparison.Interval(3.0, None)
    assert comparison.interval([1.0] * 50).half_width == 0.0


def test_a_drawn_workload_keeps_everything_but_durations() -> None:
    jobs = [job(f"j{at}", at, 10 + at, 1 + at % 2, queue="ab"[at % 2]) for at in range(10)]
    drawn = comparison.resampled(jobs, [0.99] * 10)
    for before, after in zip(jobs, drawn, strict=True):
        kept = (before.name, before.submit_us, before.tasks, before.queue, before.resources)
        assert kept == (after.name, after.submit_us, after.tasks, after.queue, after.resources)
        own = {each.duration_us for each in jobs if each.queue == before.queue}
        assert after.duration_us in own
    assert {each.duration_us // workload.SECOND_US for each in drawn} == {18, 19}


def compare(folder: Path, *more: str) -> list[str]:
    """The lines of stdout for a configuration that orders by priority and one that does not."""
    (folder / "fifo.yaml").write_text(PACK)
    (folder / "priority.yaml").write_text(ORDERED)
    (folder / "nodes.csv").write_text("name,cpu\nn,1\n")
    (folder / "jobs.csv").write_text(
        "submit_s,duration_s,priority\n0,10,0\n1,30,0\n2,5,9\n3,20,0\n4,7,9\n"
    )
    files = ["--nodes", str(folder / "nodes.csv"), "--jobs", str(folder / "jobs.csv")]
    configs = [str(folder / "fifo.yaml"), str(folder / "priority.yaml")]
    result = CliRunner().invoke(simulate.app, ["compare", *configs, *files, *more])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_one_seed_compares_the_workload_as_it_is(tmp_path: Path) -> None:
    found = json.loads(compare(tmp_path, "-o", "json")[-1])
    first, second = found["configurations"]
    assert (first["name"], second["name"]) == ("fifo", "priority")
    mean = first["measures"]["jct_mean_s"]["mean"]
    assert mean == pytest.approx((10 + 39 + 43 + 62 + 68) / 5)
    assert second["differences"]["jct_mean_s"]["mean"] < 0
    assert first["differences"]["jct_mean_s"] == {"mean": 0.0, "half_width": None}


@pytest.mark.timeout(300)  # eight simulations, on a busy machine, too
def test_seeds_give_intervals_and_the_same_output_again(tmp_path: Path) -> None:
    lines, again = (
        # Services of other tests in this process may log meanwhile.
        [line for line in compare(tmp_path, "--seeds", "4", "-o", "markdown") if line[:1] == "|"]
        for _ in range(2)
    )
    assert lines == again
    assert lines[0] == "| measure | fifo | priority | priority - fifo |"
    assert lines[2].startswith("| finished | 5 ± 0 | 5 ± 0 | 0 ± 0 |")
    assert any(line.startswith("| jct_mean_s | ") and " ± " in line for line in lines)


def test_plots_of_a_comparison_are_one_file(tmp_path: Path) -> None:
    compare(tmp_path, "--seeds", "2", "--report", str(tmp_path / "c.html"))
    text = (tmp_path / "c.html").read_text()
    assert text.count("<svg") >= 8
    assert "<script" not in text
