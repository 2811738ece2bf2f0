"""Rules of ``#SBATCH`` lines: translated, or reported with line and option."""

import re
from typing import Any

import pytest

from stromboli.cli.job_specs import job_spec, sbatch, script


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--partition=gpu -t 90", "--queue gpu --time 5400s"),
        ("-t 1:30", "--time 90s"),
        ("--time=2:00:00", "--time 7200s"),
        ("--time 1-12", "--time 129600s"),
        ("--time=1-12:30:10", "--time 131410s"),
        ("--mem=16G", "--memory 16Gi"),
        ("--mem=4000", "--memory 4000Mi"),
        ("--mem-per-cpu=2G --cpus-per-task=4", "--memory 8Gi --cpus 4 --env SLURM_CPUS_PER_TASK=4"),
        ("-c4", "--cpus 4 --env SLURM_CPUS_PER_TASK=4"),
        ("--gres=gpu:2", "--gpus 2"),
        ("--gpus-per-node 8", "--gpus 8"),
        ("-a 0-15%4 -D /work", "--array 0-15%4 --workdir /work"),
        ("--dependency=afterok:prepare", "--dependency afterok:prepare"),
        ("--export=NONE,A=b,C", "--env A=b --env C"),
        ("--container-image=pytorch:2", "--image pytorch:2"),
        ("--reservation=course", "--reservation course"),
        ("--nodes=1 --ntasks=1", ""),
        ("--part=gpu", "--queue gpu"),
    ],
)
def test_an_option_with_the_same_meaning_is_translated(words: str, options: str) -> None:
    translation = sbatch.translate(words.split())
    assert (" ".join(translation.words), translation.warnings) == (options, ())


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        ("--nodes=4", "--nodes=4 is ignored: the script would run once in each pod"),
        ("-o out.txt", "--output=out.txt is ignored: logs are kept with the pod"),
        (
            "--mail-type=END",
            "--mail-type=END is ignored: annotate the job with stromboli.sh/notify",
        ),
        ("--switches=2", "--switches=2 is ignored: it has no counterpart"),
        ("--mem=0", "--mem=0 is ignored: set the memory of a node with --memory"),
        ("--exclusive", "--exclusive is ignored: request all CPUs of a node"),
        ("--gres=gpu:a100:2", "--gres=gpu:a100:2: the GPU type is ignored"),
        ("--export=ALL", "--export=ALL: only named variables are set"),
    ],
)
def test_every_other_option_is_a_warning_that_names_it(words: str, warning: str) -> None:
    (found,) = sbatch.translate(words.split()).warnings
    assert found.startswith(warning)


@pytest.mark.parametrize("words", ["--time=soon", "--mem=much", "--gres=fpga:1", "train", "--time"])
def test_an_invalid_value_is_an_error(words: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        sbatch.translate(words.split())


TEXT = """#!/bin/bash
#SBATCH --job-name=My_Train
#SBATCH --cpus-per-task=2 --mem=1G --array=0-3%2
#SBATCH --nodes=2
#STROM --cpus 3
srun python train.py $SLURM_ARRAY_TASK_ID ${SLURM_JOB_ID} $SLURM_NTASKS
#SBATCH --time=10
"""


def test_a_script_of_slurm_keeps_its_name_its_index_and_its_warnings() -> None:
    found = script.parse("a.sh", TEXT)
    assert [line.number for line in found.lines] == [3, 5], "lines of #STROM override"
    assert found.title == "My_Train"
    assert [number for number, _ in found.warnings] == [4, 7, 6, 6]
    assert found.warnings[1][1] == "#SBATCH after the first command (line 6) is ignored"
    assert found.warnings[2][1] == "SLURM_NTASKS is not set"
    assert found.warnings[3][1] == sbatch.SRUN
    command = found.command((), array="train")
    assert command[:2] == ("env", "SLURM_ARRAY_TASK_ID=$(STROM_ARRAY_INDEX)")
    assert {"SLURM_JOB_ID=train_$(STROM_ARRAY_INDEX)", "SLURM_ARRAY_JOB_ID=train"} <= {*command}
    assert found.command(())[0] == "/bin/bash"


def test_a_script_of_slurm_gets_the_variables_of_its_job() -> None:
    spec = job_spec.RunSpec(
        name="train-a",
        queue="gpu",
        slurm_name="Train",
        submit_directory="/home/$(x)",
        environment={"SLURM_JOB_PARTITION": "own"},
    )
    document = job_spec.document(spec)
    (container,) = document["spec"]["tasks"][0]["template"]["spec"]["containers"]
    found = {each["name"]: each.get("value") or each["valueFrom"] for each in container["env"]}
    assert found == {
        "SLURM_JOB_ID": "train-a",
        "SLURM_JOBID": "train-a",
        "SLURM_JOB_NAME": "Train",
        "SLURM_JOB_PARTITION": "own",
        "SLURM_SUBMIT_DIR": "/home/$$(x)",
        "SLURMD_NODENAME": {"fieldRef": {"fieldPath": "spec.nodeName"}},
    }


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--foo=3", "--foo is not an option of sbatch"),
        ("-Z", "-Z is not an option of sbatch"),
        ("--", "-- is not an option of sbatch"),
        ("--cpus=4", "--cpus is ambiguous: --cpus-per-gpu, --cpus-per-task"),
    ],
)
def test_an_option_that_sbatch_does_not_have_is_an_error(words: str, error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        sbatch.translate(words.split())


@pytest.mark.parametrize(
    ("row", "calls"),
    [("srun python a.py", True), ("  X=1 srun", True), ("out=$(srun a)", True), ("# srun", False),
     ("mysrun a", False), ("python srun.py", False)],
)  # fmt: skip
def test_srun_in_a_script_is_a_warning(row: str, calls: bool) -> None:
    assert script.parse("a.sh", f"#!/bin/sh\n{row}\n").warnings == ((2, sbatch.SRUN),) * calls


def test_an_invalid_line_is_reported_with_its_number() -> None:
    with pytest.raises(script.ScriptError, match=re.escape("--time=x: write minutes")) as raised:
        script.parse("a.sh", "#!/bin/sh\n#SBATCH --time=x\n")
    assert raised.value.line == 2


def test_submit_runs_a_script_of_slurm_and_names_file_line_and_option(
    api_server: Any, strom: Any, tmp_path: Any
) -> None:
    path = tmp_path / "train.sh"
    path.write_text(TEXT)
    made = strom("job", "submit", str(path))
    assert made.exit_code == 0, made.stderr
    name = made.stdout.split()[0].rpartition("/")[2]
    assert re.fullmatch(r"my-train-[a-z0-9]{5}", name)
    assert f"Warning: {path}:4: --nodes=2 is ignored" in made.stderr
    job = api_server.job(name)
    assert (job.spec.array.indexes, job.spec.tasks[0].replicas) == ("0-3", 2)
    assert b'"cpu":"3"' in bytes(job.spec.tasks[0].template.spec).replace(b" ", b"")
