"""Rules of the experiments: what the page says is what comes out."""

from pathlib import Path

import pytest

from experiments import __main__ as program
from experiments import gang, support


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
    page = (Path(__file__).parents[2] / program.PAGE).read_text()
    _, _, rest = page.partition(f"<!-- {name} -->\n")
    text, _, _ = rest.partition("<!-- end -->")
    experiment = program.EXPERIMENTS[name]
    assert text.splitlines()[1] == f"| | {' | '.join(experiment.measures)} |"
    rows = [line.split("|")[1].strip() for line in text.splitlines()[3:] if line]
    assert rows == list(experiment.scenarios(0))
    assert f"](pictures/experiment-{name}.svg)" in page


def test_a_page_without_the_marks_of_an_experiment_is_not_written() -> None:
    with pytest.raises(ValueError, match="<!-- gang -->"):
        program.with_results("# Experiments\n", "gang", "| |")
