"""The real jobs of the demo, which are also those in ``examples/``."""

import sys
from pathlib import Path

import pytest

from stromboli.embedded.demo import real
from stromboli.testkit import records

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")
async def test_real_jobs_finish_and_their_output_proves_it(tmp_path: Path) -> None:
    """All run at the same time, on two nodes, with only python3."""
    real_jobs_result = await real.show(tmp_path, limit_s=3 * records.DEADLINE_S)
    assert real_jobs_result.failures == []
    assert [job.name for job in real_jobs_result.ran] == list(
        real.SHOWN
    ) or real_jobs_result.left_out
    ranks = {line.partition(": ")[2] for line in real_jobs_result.ran[0].lines}
    assert ranks == {f"rank {rank} of 4: 10000 sums are right, 10 each" for rank in range(4)}


def test_a_job_with_a_wrong_result_is_a_failure() -> None:
    ran = (
        real.JobResult("ring", "Completed", ()),
        real.JobResult("mpi", "Failed", ("mpi-mpimaster-0: master: collected 2 ranks",)),
        real.JobResult("pytorch", "Completed", ("pytorch-master-0: y = 3.00 x + 1.00",)),
    )
    assert [line.split()[2] for line in real.RealJobsResult(ran).failures] == ["ring", "mpi"]


@pytest.mark.parametrize("name", real.SHOWN)
def test_an_example_is_the_demos_own_manifest(name: str) -> None:
    assert (EXAMPLES / f"{name}.yaml").resolve() == real.MANIFESTS / f"{name}.yaml"
