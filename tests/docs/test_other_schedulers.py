"""The tables of commands and options for users of Slurm and Volcano: complete, and ours exist."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
import typer
from markdown_it import MarkdownIt
from typer.core import TyperGroup

from stromboli.cli import main
from stromboli.cli.commands.accounting import history
from stromboli.cli.commands.jobs import job_history
from stromboli.cli.job_specs import job_fields
from stromboli.cli.lazy import loaded
from stromboli.cli.parameters import parsing
from stromboli.cli.render import start_view
from stromboli.cli.render.nodes import node_health
from tests.docs.blocks import ROOT

# The options of the manual pages of Slurm 25.05, without --help, --usage and --version.
SLURM: Mapping[str, str] = {
    "sbatch": """
        account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment
        consolidate-segments constraint container container-id contiguous core-spec
        cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency
        distribution error exclude exclusive export export-file extra extra-node-info get-user-env
        gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint
        hold ignore-pbs input job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label
        mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-kill no-requeue nodefile
        nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
        oom-kill-step open-mode output overcommit oversubscribe parsable partition power prefer
        priority profile propagate qos quiet reboot requeue reservation resv-ports segment signal
        sockets-per-node spread-job stepmgr switches test-only thread-spec threads-per-core time
        time-min tmp tres-bind tres-per-task uid use-min-nodes verbose wait wait-all-nodes wckey
        wrap""",
    # The options of srun and salloc that sbatch does not have.
    "srun": """
        bcast bcast-exclude compress disable-status epilog exact external-launcher het-group
        immediate interactive jobid kill-on-bad-exit label mpi msg-timeout multi-prog no-allocate
        overlap preserve-env prolog pty quit-on-interrupt relative send-libs slurmd-debug
        task-epilog task-prolog threads treewidth unbuffered wait whole x11""",
    "salloc": "bell immediate kill-command no-bell no-shell x11",
    "squeue": """
        account all array array-unique clusters expand-patterns federation format Format hide
        iterate jobs json licenses local long me name noconvert nodelist noheader notme
        only-job-state partition priority qos reservation sibling sort start states steps user
        verbose yaml""",
    "scancel": """
        account batch clusters cron ctld full hurry interactive jobname me name nodelist partition
        qos quiet reservation sibling signal state user verbose wckey""",
    "sinfo": """
        all clusters dead exact federation format Format future hide iterate json list-reasons
        local long noconvert Node nodes noheader partition reservation responding sort states
        summarize verbose yaml""",
    "sacct": """
        accounts allclusters allocations allusers array associations batch-script brief clusters
        completion constraints delimiter duplicates endtime env-vars expand-patterns federation
        file flags format gid group helpformat jobs json local long name ncpus nnodes nodelist
        noconvert noheader parsable parsable2 partition qos reason reservation starttime state
        timelimit-max timelimit-min truncate uid units use-local-uid user verbose wckeys
        whole-hetjob yaml""",
    "sreport": """
        all_clusters autocomplete cluster federation local noheader parsable parsable2 quiet tres
        verbose""",
    "sprio": """
        clusters federation format jobs local long noheader norm partition sibling sort user verbose
        weights""",
    "sstat": """
        allsteps fields format helpformat jobs noconvert noheader parsable parsable2 pidformat
        verbose""",
    "sdiag": "all cluster json reset sort-by-id sort-by-time sort-by-time2 yaml",
    "strigger": """
        backup_slurmctld_assumed_control backup_slurmctld_failure
        backup_slurmctld_resumed_operation burst_buffer clear clusters down drained draining fail
        fini flags get id idle jobid node noheader offset primary_database_failure
        primary_database_resumed_operation primary_slurmctld_acct_buffer_full
        primary_slurmctld_failure primary_slurmctld_resumed_control
        primary_slurmctld_resumed_operation primary_slurmdbd_failure
        primary_slurmdbd_resumed_operation program quiet reconfig resume set time up user
        verbose""",
    "sattach": "error-filter input-filter label layout output-filter pty quiet verbose",
    "sbcast": """
        compress exclude fanout force jobid preserve send-libs size timeout treewidth verbose""",
}
SACCTMGR = """
    account add archive association clear cluster configuration coordinator create delete dump event
    federation instance job list load modify ping problem qos reconfigure resource runawayjobs show
    shutdown stats transaction tres user wckeys
    --associations --immediate --json --noheader --parsable --parsable2 --quiet --readonly --verbose
    --yaml"""
"""Commands, entities and options."""
SCONTROL = """
    abort cancel_reboot cluster completing create delete errnumstr fsdampeningfactor getaddrs hold
    listjobs listpids liststeps notify pidinfo ping power reboot reconfigure release requeue
    requeuehold resume schedloglevel setdebug setdebugflags show shutdown suspend takeover token top
    uhold update wait_job write"""

VOLCANO = """
    vcctl job run, vcctl job list, vcctl job view, vcctl job suspend, vcctl job resume,
    vcctl job delete, vcctl queue create, vcctl queue list, vcctl queue get, vcctl queue delete,
    vcctl queue operate, vcctl jobflow create, vcctl jobflow list, vcctl jobflow get,
    vcctl jobflow describe, vcctl jobflow delete, vcctl jobtemplate create, vcctl jobtemplate list,
    vcctl jobtemplate get, vcctl jobtemplate describe, vcctl jobtemplate delete, vcctl pod list,
    vcctl version, vsub, vjobs, vqueues, vcancel, vsuspend, vresume"""

VOLCANO_OPTIONS = """
    action all-namespaces command filename image job kubeconfig limits log-flush-frequency master
    min name namespace output queue replicas requests scheduler selector state v vmodule weight"""


class Row(msgspec.Struct, frozen=True):
    """A row of a table: the codes of its cells. ``ours``: the header of the second column."""

    heading: str
    ours: str
    cells: tuple[tuple[str, ...], ...]


def rows(page: str) -> Iterator[Row]:
    """Of all tables of a page."""
    heading, header, cells = "", list[str](), list[tuple[str, ...]]()
    tokens = MarkdownIt("commonmark").enable("table").parse((ROOT / page).read_text())
    in_head = False
    for before, token in zip([None, *tokens], tokens, strict=False):
        match token.type:
            case "inline" if before is not None and before.type == "heading_open":
                heading = token.content
            case "thead_open":
                in_head, header = True, []
            case "thead_close":
                in_head = False
            case "inline" if in_head:
                header.append(token.content.strip("`"))
            case "tr_open":
                cells = []
            case "inline" if before is not None and before.type == "td_open":
                children = token.children or []
                cells.append(tuple(each.content for each in children if each.type == "code_inline"))
            case "tr_close" if not in_head:
                yield Row(heading, header[1], tuple(cells))


def theirs(page: str, heading: str) -> set[str]:
    """The words of the first column of the tables below a heading."""
    return {
        word.partition("=")[0]
        for row in rows(page)
        if row.heading == heading
        for code in row.cells[0]
        for word in code.split()
    }


@pytest.mark.parametrize("command", SLURM)
def test_each_option_of_slurm_has_ours_or_the_reason(command: str) -> None:
    named = theirs("docs/from-slurm.md", f"Options of `{command}`")
    wanted = {f"--{option}" for option in SLURM[command].split()}
    assert wanted - named == set()
    assert {word for word in named if word.startswith("--")} - wanted <= {
        "--container-image",  # Pyxis
        "--cpu-bind",  # srun
    }


def test_each_command_of_scontrol_has_ours_or_the_reason() -> None:
    named = theirs("docs/from-slurm.md", "Commands of `scontrol`")
    assert set(SCONTROL.split()) == named


def test_each_command_and_entity_of_sacctmgr_has_ours_or_the_reason() -> None:
    named = theirs("docs/from-slurm.md", "Commands and entities of `sacctmgr`")
    assert set(SACCTMGR.split()) - named == set()


def test_each_command_of_volcano_has_ours_or_the_reason() -> None:
    named = {
        " ".join(words)
        for row in rows("docs/from-volcano.md")
        if row.heading == "Commands"
        for code in row.cells[0]
        for words in alternatives(code)
    }
    wanted = {" ".join(each.split()) for each in VOLCANO.split(",")}
    assert {
        each for each in wanted if not any(f"{it} ".startswith(f"{each} ") for it in named)
    } == set()


def test_each_option_of_volcano_has_ours_or_the_reason() -> None:
    named = theirs("docs/from-volcano.md", "Commands")
    assert {f"--{option}" for option in VOLCANO_OPTIONS.split()} - named == set()


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and the words after it. Fails if there is none."""
    found: Any = typer.main.get_command(main.app)
    context = typer.Context(found, info_name="strom")
    while isinstance(found, TyperGroup) and words and not words[0].startswith("-"):
        inner = found.get_command(context, words[0])
        assert inner is not None, f"there is no {words[0]} in {found.name}"
        found, words = loaded(inner), words[1:]
    return found, words


def alternatives(code: str) -> Iterator[list[str]]:
    """``queue open|close NAME`` as two commands."""
    words = code.replace("\\|", "|").split()
    for place, word in enumerate(words):
        if "|" in word and not word.startswith("-"):
            for each in word.split("|"):
                yield from alternatives(" ".join([*words[:place], each, *words[place + 1 :]]))
            return
    yield words


def ours() -> list[Any]:
    """Commands and options in the second column, each as the words of a call of ``strom``."""
    root: Any = typer.main.get_command(main.app)
    found, groups = list[Any](), root.list_commands(typer.Context(root))
    for page in ("docs/from-slurm.md", "docs/from-volcano.md"):
        for row in rows(page):
            base = row.ours.split(",")[0].split()
            for code in row.cells[1] if len(row.cells) > 1 else ():
                if code.startswith("strom "):
                    calls = list(alternatives(code.removeprefix("strom ")))
                elif code.startswith("-") and base[:1] == ["strom"] and base[1:]:
                    calls = [[*base[1:], *code.split()]]
                elif (
                    page.endswith("volcano.md")
                    and row.ours == "strom"
                    and code.split()[0] in groups
                ):
                    calls = list(alternatives(code))
                else:
                    continue
                found += [pytest.param(call, id=f"{page}-{' '.join(call)}") for call in calls]
            for code in row.cells[2] if len(row.cells) > 2 else ():
                if code.startswith("strom "):
                    call = code.removeprefix("strom ").split()
                    found.append(pytest.param(call, id=f"{page}-{' '.join(call)}"))
    return found


@pytest.mark.parametrize("words", ours())
def test_our_commands_and_options_in_the_tables_exist(words: list[str]) -> None:
    command, rest = command_of(words)
    if not hasattr(command, "params") or isinstance(command, TyperGroup):
        return
    known = {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    for word in rest:
        if word == "--":
            break
        flags = [f"-{each}" for each in word[1:]] if re.fullmatch("-[a-z]{2,}", word) else [word]
        if re.match("--?[a-zA-Z]", word):
            assert {each.partition("=")[0] for each in flags} <= known, (
                f"{' '.join(words)} has no {word}"
            )
    for option, value in itertools.pairwise(rest):
        if option == "--format":
            assert set(value.split(",")) <= set(history.COLUMNS)
    if words[:2] == ["job", "set"]:
        changed = {word.partition("=")[0] for word in rest if "=" in word}
        assert changed <= set(job_fields.OPTIONS.values())


def test_columns_of_accounting_exist() -> None:
    columns = [
        code
        for row in rows("docs/from-slurm.md")
        if row.ours.startswith("column of")
        for code in row.cells[1]
    ]
    assert len(columns) >= 20
    assert set(columns) - set(history.COLUMNS) == set()


@pytest.mark.parametrize(
    ("column", "headers"),
    [
        ("STARTS IN", (start_view.HEADER,)),
        ("FREE CPU", node_health.HEADERS),
        ("STATUS", node_health.HEADERS),
        ("REASON", job_history.HEADERS),
        ("STATE", job_history.HEADERS),
    ],
)
def test_columns_of_lists_exist(column: str, headers: tuple[str, ...]) -> None:
    """They are in capitals, as in the tables of ``strom``."""
    assert column in (ROOT / "docs/from-slurm.md").read_text()
    assert column in headers


def test_codes_of_states_are_those_of_slurm() -> None:
    (line,) = (
        line
        for line in (ROOT / "docs/from-slurm.md").read_text().splitlines()
        if line.startswith("| PD, R,")
    )
    codes, phases = (cell.strip().split(", ") for cell in line.strip("|").split("|"))
    for code, phase in zip(codes, phases, strict=True):
        assert phase in parsing.phases(code)
