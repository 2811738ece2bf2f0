"""The report of a simulation, its charts and the numbers that only it shows."""

import html.parser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from embedded.tests import simulations
from embedded.tests.simulations import Simulated, job, nodes
from stromboli.embedded.commands import simulate
from stromboli.embedded.simulation import svg
from stromboli.embedded.simulation.core import fairness, results, series, workload
from stromboli.scheduler.core.placement import extension_points


class Tags(html.parser.HTMLParser):
    """Tags that are open, and attributes that load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attributes}
        self.loads += sorted(names & {"src", "href", "action"})
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def report(folder: Path, *more: str) -> str:
    (folder / "nodes.csv").write_text("name,count,cpu\nn,2,4\n")
    (folder / "jobs.csv").write_text(
        "job,submit_s,duration_s,tasks,cpu,queue\n"
        "first,0,10,2,4,a\nsecond,1,10,2,4,b\nnever,2,1,1,9,b\n"
    )
    names = "--nodes", folder / "nodes.csv", "--jobs", folder / "jobs.csv"
    arguments = ["run", *map(str, names), "--report", str(folder / "r.html"), *more]
    result = CliRunner().invoke(simulate.app, arguments)
    assert result.exit_code == 0, result.output
    return (folder / "r.html").read_text()


def test_the_report_is_one_file_that_loads_nothing(tmp_path: Path) -> None:
    text = report(tmp_path)
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.loads == []
    assert "<script" not in text
    assert "url(" not in text


def test_the_report_shows_jobs_queues_and_reasons(tmp_path: Path) -> None:
    text = report(tmp_path)
    assert "second, queue b: submitted 1 s, waited 9.0 s, ended 20.0 s, 0 evictions" in text
    assert "never, queue b: submitted 2 s, not started, not ended, 0 evictions" in text
    assert "can never fit: largest node has 4 cpu, a pod needs 9 cpu" in text
    assert "Why jobs wait" in text
    assert text == report(tmp_path)


def test_a_report_that_cannot_be_written_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        report(tmp_path, "--report", str(tmp_path / "absent" / "r.html"))


def test_names_are_escaped_in_charts() -> None:
    assert "<b>" not in svg.lines("<b>", {"<b>": [1.0]}, 1.0)
    assert "<b>" not in svg.gantt("<b>", [svg.Bar("<b>", 0, [(0, 1)], "#000", "<b>")], 1.0)


def test_the_mean_of_a_series_is_exact_at_any_width() -> None:
    clockwork = series.Clockwork()
    found, late = series.Series(clockwork), series.Series(clockwork)
    end_us = 10**10
    found.change(3.0, 0)
    found.change(1.0, 7 * 10**6)
    late.change(5.0, end_us - 1)
    means = found.means(end_us)
    assert len(means) <= 2 * series.BUCKETS
    width = clockwork.width_us
    spans = [min(end_us, (at + 1) * width) - at * width for at in range(len(means))]
    total = sum(mean * span for mean, span in zip(means, spans, strict=True))
    assert total == pytest.approx(3 * 7 * 10**6 + (end_us - 7 * 10**6))
    assert sum(late.means(end_us)) * spans[-1] == pytest.approx(5.0)


def gauges(**queues: tuple[float, float, float]) -> list[extension_points.Gauge]:
    """(allocated, request, deserved) cpu of queues."""
    return [
        extension_points.Gauge(f"queue_{kind}_milli_cpu", amount, (("queue_name", name),))
        for name, amounts in queues.items()
        for kind, amount in zip(("allocated", "request", "deserved"), amounts, strict=True)
    ]


@pytest.mark.parametrize(
    ("held", "jain", "distance"),
    [
        ({"a": (50, 90, 50), "b": (50, 90, 50)}, 1.0, 0.0),
        ({"a": (100, 100, 50), "b": (0, 100, 50)}, 0.5, 0.5),
        ({"a": (100, 100, 50), "b": (0, 0, 0)}, 1.0, 0.25),
    ],
)
def test_fairness_compares_what_queues_hold_with_what_they_deserve(
    held: dict[str, tuple[float, float, float]], jain: float, distance: float
) -> None:
    found = fairness.Fairness()
    found.sample(gauges(**held), {"cpu": 100.0}, 10)
    assert found.means(20) == pytest.approx((jain, distance))


def test_fairness_is_measured_only_while_jobs_wait() -> None:
    idle = results.summarize(Simulated(nodes(2), [job("a"), job("b", queue="b")]).kernel, 0)
    assert idle.fairness_jain is None
    options = msgspec.structs.replace(
        workload.Options(), configured=simulations.configured("allocate")
    )
    jobs = [job("a", 0, 100, queue="a"), job("b", 1, 50, queue="b")]
    one_runs = results.summarize(Simulated(nodes(1), jobs, options).kernel, 0)
    assert one_runs.fairness_jain == pytest.approx(0.5)
    assert one_runs.deserved_distance == pytest.approx(0.5)


@given(
    st.floats(min_value=1e-9, max_value=1e12),
    st.integers(1, 20),
    st.sampled_from([(), (1, 2, 3, 6, 12)]),
)
def test_axes_have_a_few_round_values_that_the_chart_contains(
    most: float, count: int, steps: tuple[float, ...]
) -> None:
    values = svg.ticks(most, count, steps)
    assert values[0] == 0
    assert (2 if count >= 3 else 1) <= len(values) <= count + 1
    assert values[-1] <= most * (1 + 1e-6)
    if len(values) > 1 and values[1] not in steps:
        assert f"{values[1]:.0e}"[0] in "125"


def test_a_time_axis_has_values_of_its_unit() -> None:
    assert svg.ticks(47, 8, (1, 2, 3, 6, 12)) == [0, 6, 12, 18, 24, 30, 36, 42]
    assert svg.ticks(0.5, 8, (1, 2, 5, 10)) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert svg.ticks(0.9, 5) == [0, 0.2, 0.4, pytest.approx(0.6), 0.8]
    assert svg.ticks(0, 5) == [0]
