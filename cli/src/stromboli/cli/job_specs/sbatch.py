"""``#SBATCH`` lines as options of ``strom job run``. Pure.

Options with the same meaning are translated. Every other option of sbatch becomes a warning with
the reason and what to use instead: ignoring it silently would change what the job does. An option
that sbatch does not have is an error, as in sbatch. Sources: sbatch(1) of Slurm 25.05 and its
undocumented older names; options that begin with ``container-`` belong to NVIDIA's plugin pyxis.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

Words = tuple[str, ...]
SHORT = {
    "J": "job-name", "p": "partition", "t": "time", "c": "cpus-per-task", "a": "array",
    "d": "dependency", "D": "chdir", "G": "gpus", "N": "nodes", "n": "ntasks", "o": "output",
    "e": "error", "i": "input", "A": "account", "q": "qos", "C": "constraint", "w": "nodelist",
    "x": "exclude", "L": "licenses", "H": "hold", "s": "oversubscribe", "W": "wait", "Q": "quiet",
    "b": "begin", "M": "clusters", "B": "extra-node-info", "m": "distribution", "k": "no-kill",
    "F": "nodefile", "O": "overcommit", "S": "core-spec", "v": "verbose", "V": "version",
    "h": "help", "u": "usage",
}  # fmt: skip
"""Letter of a short option -> its long name."""
FLAGS = frozenset(
    {"exclusive", "requeue", "no-requeue", "hold", "oversubscribe", "wait", "quiet", "parsable",
     "no-kill", "overcommit", "contiguous", "ignore-pbs", "spread-job", "verbose", "reboot", "help",
     "usage", "version", "test-only", "use-min-nodes", "stepmgr", "get-user-env", "share",
     "container-writable", "container-remap-root", "container-mount-home",
     "no-container-mount-home", "no-container-entrypoint"}
)  # fmt: skip
"""Options without a value, or with an optional value after ``=``."""
_NAMES = """account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment
    consolidate-segments constraint container container-id contiguous core-spec cores-per-socket
    cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error exclude
    exclusive export export-file extra extra-node-info get-user-env gid gpu-bind gpu-freq gpus
    gpus-per-node gpus-per-socket gpus-per-task gres gres-flags help hint hold ignore-pbs input
    jobid job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind
    mem-per-cpu mem-per-gpu mincores mincpus minsockets minthreads network nice no-kill no-requeue
    nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
    oom-kill-step open-mode output overcommit oversubscribe parsable partition power prefer
    priority profile propagate qos quiet reboot requeue reservation resv-ports segment share signal
    sockets-per-node spread-job stepmgr switches tasks-per-node test-only thread-spec
    threads-per-core time time-min tmp tres-bind tres-per-task uid usage use-min-nodes verbose
    version wait wait-all-nodes wckey wrap
    container-image container-mounts container-workdir container-name container-save
    container-mount-home no-container-mount-home container-remap-root container-entrypoint
    no-container-entrypoint container-entrypoint-log container-writable container-env"""
KNOWN = frozenset(_NAMES.split())
"""All options of sbatch; a unique prefix is accepted, too (getopt_long)."""
UNSUPPORTED = {
    "nodes": "the script would run once in each pod: set --replicas, and see docs/from-slurm.md",
    "ntasks": "the script would run once in each pod: set --replicas, and see docs/from-slurm.md",
    "ntasks-per-node": "set --replicas, and see docs/from-slurm.md",
    "output": "logs are kept with the pod: strom job logs",
    "error": "logs are kept with the pod: strom job logs",
    "account": "shares belong to queues and namespaces: set --queue",
    "qos": "set --priority, the name of a PriorityClass",
    "hold": "suspend the job: strom job hold",
    "requeue": "set --retries N to start the job again after a failure",
    "no-requeue": "a job starts again only with --retries",
    "constraint": "set node selectors in a manifest",
    "nodelist": "set node selectors in a manifest",
    "exclude": "set node affinity in a manifest",
    "exclusive": "request all CPUs of a node",
    "wait": "set --wait on the command line",
    "test-only": "set --check on the command line",
    "parsable": "set -o name on the command line",
    "wrap": "write the command after two dashes: strom job run NAME -- COMMAND",
    "mail-user": "annotate the job with stromboli.sh/notify, see docs/notifications.md",
    "mail-type": "annotate the job with stromboli.sh/notify, see docs/notifications.md",
}
"""Options without a translation, and what to use instead."""
SRUN = "srun does not exist in pods: call the program itself, in each pod, see docs/from-slurm.md"
_SRUN = re.compile(r"(?:^|[\s;&|(`])srun(?:\s|$)")
MEMORY_UNITS = {"K": "Ki", "M": "Mi", "G": "Gi", "T": "Ti"}
VARIABLES = {
    "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_CPUS_PER_TASK", "SLURM_JOBID",
    "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_SUBMIT_DIR", "SLURMD_NODENAME",
}  # fmt: skip
"""Slurm variables that pods get: those of arrays in an array, the number of CPUs with
--cpus-per-task."""


class Translation(msgspec.Struct, frozen=True):
    """Options of ``strom job run`` and warnings. ``title``: the job name, which need not be
    unique in Slurm, so the job gets a suffix."""

    words: Words = ()
    warnings: tuple[str, ...] = ()
    title: str = ""


def translate(words: Sequence[str]) -> Translation:
    """The options of one line. Raises ValueError for an invalid value."""
    line_options = dict(_options(words))
    translated: list[str] = []
    warnings: list[str] = []
    for name, value in line_options.items():
        if name == "job-name":
            continue
        if name == "export":
            translated += _exported(value)
            if "ALL" in value.split(","):
                warnings.append(f"--export={value}: only named variables are set, not ALL")
        elif name in ("nodes", "ntasks") and value == "1":
            continue
        elif name == "mem" and not value.strip("0KMGT"):
            warnings.append(f"--mem={value} is ignored: set the memory of a node with --memory")
        elif name == "mem-per-cpu":
            translated += [
                "--memory",
                _memory(value, _cpus(line_options.get("cpus-per-task", "1"))),
            ]
        elif name in _TRANSLATED:
            translated += _TRANSLATED[name](value)
        else:
            written = f"--{name}={value}" if value else f"--{name}"
            why = UNSUPPORTED.get(name, "it has no counterpart in strom job run")
            warnings.append(f"{written} is ignored: {why}")
        if name in ("gres", "gpus", "gpus-per-node", "gpus-per-task") and _gpu_type(value):
            warnings.append(f"--{name}={value}: the GPU type is ignored; set a node selector")
    return Translation(tuple(translated), tuple(warnings), line_options.get("job-name", ""))


def counterpart(option: str) -> str:
    """What ``strom job run`` has instead of an option of sbatch, such as ``--mem`` or ``-p``; empty
    if sbatch does not have it, either."""
    name = SHORT.get(option[1:], option.removeprefix("--"))
    if name not in KNOWN:
        return ""
    if name == "job-name":
        return "write --name"
    if name in _TRANSLATED:
        return f"write {_TRANSLATED[name]('gpu' if name == 'gres' else '1')[0]}"
    return UNSUPPORTED.get(name, "it has no counterpart in strom job run")


def variables(job: str, title: str, queue: str, directory: str) -> dict[str, str]:
    """The variables of Slurm that are the same in all pods of a job; empty ones are not set."""
    slurm_variables = {
        "SLURM_JOB_ID": job,
        "SLURM_JOBID": job,
        "SLURM_JOB_NAME": title,
        "SLURM_JOB_PARTITION": queue,
        "SLURM_SUBMIT_DIR": directory,
    }
    return {name: escaped(value) for name, value in slurm_variables.items() if value}


def array_variables(job: str) -> Words:
    """The variables of Slurm that differ between the pods of an array, as arguments of env(1). An
    index is not a variable of the manifest, so no other variable can refer to it."""
    index = "$(STROM_ARRAY_INDEX)"
    own = f"{job}_{index}"  # the form of Slurm: unique, for files and directories of an index
    return (
        f"SLURM_ARRAY_TASK_ID={index}",
        f"SLURM_ARRAY_JOB_ID={job}",
        f"SLURM_JOB_ID={own}",
        f"SLURM_JOBID={own}",
    )


def escaped(text: str) -> str:
    """The text, escaped for a command or variable of a pod: Kubernetes expands ``$(NAME)`` in
    these, and turns ``$$`` into ``$``."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def srun_lines(text: str) -> list[int]:
    """The lines of a script that call ``srun``."""
    return [
        number
        for number, row in enumerate(text.splitlines(), 1)
        if not row.lstrip().startswith("#") and _SRUN.search(row)
    ]


def unset_variables(text: str) -> list[tuple[int, str]]:
    """Line and name of variables of Slurm that a script uses and that are not set."""
    return [
        (number, name)
        for number, row in enumerate(text.splitlines(), 1)
        if not row.lstrip().startswith("#")
        for name in dict.fromkeys(re.findall(r"\$\{?(SLURMD?_[A-Z_]+)", row))
        if name not in VARIABLES
    ]


def _options(words: Sequence[str]) -> list[tuple[str, str]]:
    """The options and their values: ``--mem=4G``, ``--mem 4G``, ``-c 4`` and ``-c4``."""
    pairs: list[tuple[str, str]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif word.startswith("-") and len(word) > 1:
            name, value = SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            equals = value
        else:
            raise ValueError(f"{word!r} is not an option")
        name = _full_name(name)
        if not equals and name not in FLAGS and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        if name in _TRANSLATED and not value:
            raise ValueError(f"--{name} needs a value")
        pairs.append((name, value))
    return pairs


def _full_name(name: str) -> str:
    """The option with this name or unique prefix. Raises ValueError."""
    begun = [name] if name in KNOWN else sorted(each for each in KNOWN if each.startswith(name))
    if not begun or not name:
        raise ValueError(f"-{'-' * (len(name) != 1)}{name} is not an option of sbatch")
    if len(begun) > 1:
        raise ValueError(f"--{name} is ambiguous: --{', --'.join(begun)}")
    return begun[0]


def _one(option: str) -> Callable[[str], list[str]]:
    return lambda value: [option, value]


def _time(value: str) -> list[str]:
    """The option for one of Slurm's times: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S. Raises
    ValueError."""
    days, dash, rest = value.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in (*parts, *([days] if dash else ()))) or len(parts) > 3:
        raise ValueError(f"--time={value}: write minutes, H:M:S or D-H:M:S")
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, minutes, seconds = 0, numbers[0], (*numbers, 0)[1]
    hours += 24 * int(days or 0)
    return ["--time", f"{hours * 3600 + minutes * 60 + seconds}s"]


def _memory(value: str, factor: int = 1) -> str:
    """A quantity of memory in Kubernetes' form. Slurm's default unit is MiB; its K, M, G and T are
    powers of 1024."""
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", value.upper())
    if match is None:
        raise ValueError(f"--mem={value}: write 16G or 4000M")
    return f"{int(match[1]) * factor}{MEMORY_UNITS[match[2] or 'M']}"


def _cpus(value: str) -> int:
    if not value.isdecimal() or not int(value):
        raise ValueError(f"--cpus-per-task={value} is not a number of CPUs")
    return int(value)


def _gpus(value: str) -> list[str]:
    """The options for ``2`` or ``a100:2`` GPUs, and for ``gpu:2`` or ``gpu:a100:2`` of
    ``--gres``."""
    count = value.rpartition(":")[2]
    if value == "gpu":
        count = "1"
    if not count.isdecimal():
        raise ValueError(f"{value!r} is not a number of GPUs")
    return ["--gpus", count]


def _gres(value: str) -> list[str]:
    if value.partition(":")[0] != "gpu" or "," in value:
        raise ValueError(f"--gres={value}: only gpu:N; set other resources with --requests")
    return _gpus(value)


def _gpu_type(value: str) -> bool:
    return len(value.removeprefix("gpu:").split(":")) > 1


def _exported(value: str) -> list[str]:
    names = [each for each in value.split(",") if each not in ("ALL", "NONE", "NIL", "")]
    return [word for each in names for word in ("--env", each)]


_TRANSLATED: dict[str, Callable[[str], list[str]]] = {
    "partition": _one("--queue"),
    "time": _time,
    "cpus-per-task": lambda value: [
        "--cpus", str(_cpus(value)), "--env", f"SLURM_CPUS_PER_TASK={value}",
    ],
    "mem": lambda value: ["--memory", _memory(value)],
    "mem-per-cpu": _one("--memory"),
    "gpus": _gpus,
    "gpus-per-node": _gpus,
    "gpus-per-task": _gpus,
    "gres": _gres,
    "array": _one("--array"),
    "dependency": _one("--dependency"),
    "reservation": _one("--reservation"),
    "chdir": _one("--workdir"),
    "container-image": _one("--image"),
    "export": _exported,
}  # fmt: skip
"""Options with the same meaning -> their options of ``strom job run``."""
