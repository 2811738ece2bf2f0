"""One Airflow for all tests."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from integrations.airflow.tests.support.airflow_system import PARTS, Airflow, until

DAGS = Path(__file__).parent / "dags"
EXAMPLE = Path(__file__).parents[3] / "examples/airflow_dag.py"


@pytest.fixture(scope="session")
def airflow(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """A running Airflow with the DAGs of these tests and the example."""
    home = tmp_path_factory.mktemp("airflow")
    shutil.copytree(DAGS, home / "dags")
    shutil.copy(EXAMPLE, home / "dags")
    running = Airflow(home, server)
    try:
        running.run("db", "migrate")
        for part in PARTS:
            running.start(part)
        until(running.is_up)
        running.log_in()
        yield running
    finally:
        running.close()
