"""Rules of the experiments: what the page says is what comes out."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from experiments import __main__ as program
from experiments import gang, page, support
from experiments.kubelets import __main__ as on_kubelets


def test_without_gang_scheduling_five_jobs_keep_each_other_waiting() -> None:
    intervals = support.run(gang.EXPERIMENT, 1)
    finished = {variant: each["finished jobs"].mean for variant, each in intervals.items()}
    assert finished == {
        "1 job, gang": 1,
        "1 job, no gang": 1,
        "2 jobs, gang": 2,
        "2 jobs, no gang": 2,
        "5 jobs, gang": 5,
        "5 jobs, no gang": 0,
    }


@pytest.mark.parametrize("name", program.EXPERIMENTS)
def test_an_experiment_has_a_chart_and_a_table_of_its_variants_on_the_page(name: str) -> None:
    experiment = program.EXPERIMENTS[name]
    check_table(name, experiment.measures, experiment.scenarios(0))


@pytest.mark.parametrize("name", on_kubelets.VARIANTS)
def test_an_experiment_on_kubelets_has_a_chart_and_a_table_on_the_page(name: str) -> None:
    check_table(name, on_kubelets.MEASURES[name], on_kubelets.VARIANTS[name])


def check_table(name: str, headings: Iterable[str], variants: Iterable[str]) -> None:
    """The page has a table with these headings and rows, and its chart."""
    text = (Path(__file__).parents[2] / page.PAGE).read_text()
    _, _, rest = text.partition(f"<!-- {name} -->\n")
    table, _, _ = rest.partition("<!-- end -->")
    assert table.splitlines()[1] == f"| | {' | '.join(headings)} |"
    rows = [line.split("|")[1].strip() for line in table.splitlines()[3:] if line]
    assert rows == list(variants)
    assert f"](pictures/experiment-{name}.svg)" in text


def test_a_page_without_the_marks_of_an_experiment_is_not_written() -> None:
    with pytest.raises(ValueError, match="<!-- gang -->"):
        page.with_results("# Experiments\n", "gang", "| |")
