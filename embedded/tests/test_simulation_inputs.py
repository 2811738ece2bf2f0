"""Files of a simulation: defaults, published formats, and every problem with its place."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stromboli.cli.errors import CommandError
from stromboli.embedded.commands import simulate
from stromboli.embedded.simulation import inputs
from stromboli.embedded.simulation.core import workload

NODES = "name,count,cpu,memory_gib,gpu,labels\nn,2,8,32,4,pool=a;rack=1\n"
JOBS = "job,submit_s,duration_s,tasks,cpu,gpu\na,0,10,2,1,4\nb,1.5,10,1,1,4\n"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def read(folder: Path, nodes: str = NODES, jobs: str = JOBS, **more: str) -> inputs.Inputs:
    files = {name: write(folder, name, text) for name, text in more.items()}
    return inputs.read(write(folder, "nodes.csv", nodes), write(folder, "jobs.csv", jobs), **files)


def problems(folder: Path, **texts: str) -> list[str]:
    with pytest.raises(CommandError) as raised:
        read(folder, **texts)
    return [line.replace(f"{folder}/", "") for line in raised.value.details]


def test_columns_that_are_absent_have_defaults(tmp_path: Path) -> None:
    found = read(tmp_path, jobs="submit_s,duration_s\n3,4\n")
    assert found.jobs == (
        workload.Job("job-1", 3 * 10**6, 4 * 10**6, resources=workload.Resources(1000)),
    )
    (group,) = found.nodes
    assert group.names() == ["n-0", "n-1"]
    assert group.labels == {"pool": "a", "rack": "1"}


def test_a_stated_run_time_is_beside_the_real_one(tmp_path: Path) -> None:
    found = read(tmp_path, jobs="submit_s,duration_s,estimate_s\n0,4,2.5\n0,4,\n")
    assert [(job.duration_us, job.estimate_us) for job in found.jobs] == [
        (4 * 10**6, 2_500_000),
        (4 * 10**6, 0),
    ]


def test_jobs_are_sorted_by_submission_and_keep_their_order_at_equal_times(tmp_path: Path) -> None:
    found = read(tmp_path, jobs="job,submit_s,duration_s\nlate,9,1\nb,3,1\na,3,1\n")
    assert [job.name for job in found.jobs] == ["b", "a", "late"]


def test_every_problem_of_all_files_is_reported_with_its_place(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        nodes="name,count,cpu\nn,0,8\n,1,-1\n",
        jobs="job,submit_s,duration_s,tasks,min_available,preemptable,priority\n"
        "a,soon,10,2,3,maybe,1\n"
        "a,0,,1.5,,,9999999999\n"
        "b,0,1\n",
        failures="node,down_s,up_s\nx,5,4\n",
    )
    assert found == [
        "nodes.csv:2: column count: '0'; write a number from 1 to 1e+09",
        "nodes.csv:3: column name: is empty; write a name",
        "nodes.csv:3: column cpu: '-1'; write a number from 0 to 1e+09",
        "jobs.csv:2: column min_available: 3 is more than 2 tasks; write at most that",
        "jobs.csv:2: column submit_s: 'soon'; write a number from 0 to 1e+09",
        "jobs.csv:2: column preemptable: 'maybe'; write true or false, or nothing",
        "jobs.csv:3: column tasks: '1.5'; write a whole number",
        "jobs.csv:3: column duration_s: is empty; write a number of at least 0",
        "jobs.csv:3: column priority: '9999999999'; write a whole number of at most 32 bits",
        "jobs.csv:3: column job: a is in line 2 already; write another name",
        "jobs.csv:4: 3 fields; the header has 7 columns",
        "failures:2: column node: 'x' is not in the file of --nodes; write one of its names",
        "failures:2: column up_s: '4'; write a time after down_s, or nothing",
    ]


@pytest.mark.parametrize(
    ("jobs", "line"),
    [
        ("", "jobs.csv:1: the file is empty; write the header job,submit_s,duration_s"),
        ("job,submit_s\n", "jobs.csv:1: column duration_s: is missing; add it to the header"),
        ("submit_s,duration_s,cpus\n", "jobs.csv:1: column cpus: is not known; columns are job"),
        ("submit_s,duration_s,submit_s\n", "jobs.csv:1: column submit_s: occurs twice"),
        ('submit_s,duration_s\n"1,2\n', "jobs.csv:2: not CSV: unexpected end of data"),
        ("submit_s,duration_s\nnan,inf\n", "jobs.csv:2: column submit_s: 'nan'; write a number"),
    ],
)
def test_a_file_of_another_form_is_rejected(tmp_path: Path, jobs: str, line: str) -> None:
    assert problems(tmp_path, jobs=jobs)[0].startswith(line)


def test_many_problems_are_counted(tmp_path: Path) -> None:
    found = problems(tmp_path, jobs="submit_s,duration_s\n" + "x,1\n" * 1000)
    assert len(found) == 51
    assert found[-1] == "and 950 more"


def test_jobs_must_name_queues_of_the_file_of_queues(tmp_path: Path) -> None:
    queue = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\n"
    found = problems(
        tmp_path,
        jobs="submit_s,duration_s,queue\n0,1,q\n0,1,other\n",
        queues=queue + "spec: {weight: 3}\n",
    )
    assert found == [
        "jobs.csv:3: column queue: 'other' is not in the file of --queues; add it there"
    ]


RESERVATION = """apiVersion: scheduling.stromboli.sh/v1alpha1
kind: AdvanceReservation
metadata: {name: course}
spec:
  startTime: "2026-01-01T00:00:50Z"
  duration: 100s
  allNodes: true
  queues: [default]
"""


def test_a_reserved_job_starts_when_its_period_begins(tmp_path: Path) -> None:
    file = str(write(tmp_path, "reservations.yaml", RESERVATION))
    jobs = "job,submit_s,duration_s,reservation\nown,1,10,course\nother,45,10,\n"
    lines = run(tmp_path, "-o", "csv", "--reservations", file, jobs=jobs)
    assert [line.split(",")[3] for line in lines[1:]] == ["50.0", "150.0"]


@pytest.mark.parametrize(
    ("file", "place", "reason"),
    [
        (RESERVATION.replace("duration: 100s", "duration: 1"), ":6", "duration"),
        (RESERVATION.replace("allNodes: true", "nodeNames: [x]"), ":7", "not in the file of"),
        (RESERVATION.replace("queues: [default]", "queues: 3"), ":8", "Expected `array`"),
        (RESERVATION.replace("AdvanceReservation", "Queue"), ":1", "not of kind"),
        (f"{RESERVATION}---\n{RESERVATION}", ":10", "occurs twice"),
        (f"{RESERVATION}---\n{RESERVATION.replace('course', 'b')}", ":14", "overlaps"),
    ],
)
def test_a_wrong_reservation_is_reported_with_file_line_and_reason(
    tmp_path: Path, file: str, place: str, reason: str
) -> None:
    with pytest.raises(CommandError) as error:
        read(tmp_path, reservations=file)
    assert error.value.what == f"{tmp_path / 'reservations'}{place}"
    assert reason in error.value.why


def test_a_job_names_a_reservation_of_the_file_of_reservations(tmp_path: Path) -> None:
    assert problems(tmp_path, jobs="submit_s,duration_s,reservation\n0,1,r\n") == [
        "jobs.csv:2: column reservation: 'r' is not in the file of --reservations; add it"
    ]


def test_jobs_and_nodes_of_the_philly_trace_are_read_as_they_are(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        nodes="vc,node num\nv1,3\nv2,1\n",
        jobs="timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:00:10,66.0,12,66.0,v1\n2017-10-09 07:00:00,5,16,6.0,v2\n",
    )
    assert [(job.submit_us // 10**6, job.tasks, job.resources.gpus) for job in found.jobs] == [
        (0, 2, 8),
        (10, 2, 6),
    ]
    assert [(queue.metadata.name, queue.spec.weight) for queue in found.queues] == [
        ("v1", 3),
        ("v2", 1),
    ]


def run(folder: Path, *more: str, jobs: str = JOBS) -> list[str]:
    """The lines of stdout."""
    files = "--nodes", write(folder, "n.csv", NODES), "--jobs", write(folder, "j.csv", jobs)
    result = CliRunner().invoke(simulate.app, ["run", *map(str, files), *more])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_the_last_line_of_json_output_is_one_object(tmp_path: Path) -> None:
    lines = run(tmp_path, "--output", "json")
    assert run(tmp_path, "--output", "json") == lines
    found = json.loads(lines[-1])
    assert (found["jobs"], found["finished"], found["evictions"]) == (2, 2, 0)
    assert found["makespan_s"] == 20.0
    assert found["jct_mean_s"] == 14.25
    assert found["wait_mean_s"] == 4.25
    assert found["gpu_utilisation"] == 0.75
    assert found.keys() >= {"jct_p50_s", "jct_p95_s", "jct_p99_s"}


def test_csv_output_has_one_line_per_job(tmp_path: Path) -> None:
    lines = run(tmp_path, "-o", "csv", jobs=JOBS + "never,0,1,1,9,0\n")
    assert lines == [
        "job,queue,submit_s,start_s,end_s,wait_s,evictions,evicted_tasks,status",
        "a,default,0.0,0.0,10.0,0.0,0,0,Completed",
        "b,default,1.5,10.0,20.0,8.5,0,0,Completed",
        "never,default,0.0,,,,0,0,Pending",
    ]


def test_a_pause_between_sessions_delays_what_the_next_one_decides(tmp_path: Path) -> None:
    lines = run(tmp_path, "-o", "csv", "--session-pause", "0.005")
    assert lines[1] == "a,default,0.0,0.005,10.005,0.005,0,0,Completed"


def test_the_table_names_jobs_that_can_never_start(tmp_path: Path) -> None:
    lines = run(tmp_path, jobs=JOBS + "never,0,1,1,9,0\n")
    assert any(line.startswith("can_never_start") and line.endswith(" 1") for line in lines)
    assert any("can never fit: largest node has 8 cpu, a pod needs 9 cpu" in line for line in lines)
