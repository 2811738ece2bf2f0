"""Size limits of objects. They are checked first, so that every later rule takes milliseconds.

An object of 1.5 MB, etcd's limit, can contain half a million values, whose defaults, rules and
messages would take admission 10 s and more. Each limit is far above real use.
"""

from collections.abc import Iterator
from typing import Any

from stromboli.shared.jobspec.validation import patch
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.messages.admission import Violation

MAX_VALUES = 50_000
"""Maximum number of values in one object, which are validated within half a second even if all are
invalid. The schema validator finds all errors before it reports one, and holds the GIL meanwhile.
"""
MAX_TASKS = 1_000
"""Maximum number of tasks of a job. The replicas are limited in ``jobs``."""
MAX_CONTAINERS = 100
"""Maximum number of containers of a pod, and of its init containers."""
MAX_PLUGINS = 100
"""Maximum number of job plugins of a job."""
MAX_ARGUMENTS = 10_000
"""Maximum number of items in a container's command or args, or in a job plugin's arguments."""
MAX_VARIABLES = 2_000
"""Maximum number of entries in a container's env; envFrom can read more from a ConfigMap."""
TOO_DEEP = Violation(
    path="",
    reason="is nested too deeply",
    expected=f"at most {patch.MAX_DEPTH} levels of objects and lists",
)


def violations(document: Document) -> tuple[Violation, ...]:
    """Violations of the limits, at most a few. O(values), without recursion."""
    levels, values = _measured(document)
    if levels > patch.MAX_DEPTH:
        return (TOO_DEEP,)
    if values > MAX_VALUES:
        why = f"has more than {MAX_VALUES} values"
        return (
            Violation(path="", reason=why, expected="use several objects, or replicas of a task"),
        )
    return tuple(
        violation for path, spec in _job_specs(document) for violation in _of_job(spec, path)
    )


def count_values(document: Any) -> int:
    """The number of values in an object; counting stops at one more than the limit."""
    return _measured(document)[1]


def _measured(document: Any) -> tuple[int, int]:
    """The depth and the number of values of a document, counted until one of them exceeds its
    limit."""
    level: list[Any] = [document]
    levels = count = 0
    while level and levels <= patch.MAX_DEPTH and count <= MAX_VALUES:
        levels += 1
        inner: list[Any] = []
        for outer in level:
            count += len(outer)
            if count > MAX_VALUES:
                break
            members = outer.values() if isinstance(outer, dict) else outer
            inner += [member for member in members if isinstance(member, dict | list)]
        level = inner
    return levels, count


def _job_specs(document: Document) -> Iterator[tuple[str, Document]]:
    """The parts that may be job specs: of a job or a job template, or within a CronJob."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return
    yield "spec", spec
    template = spec.get("jobTemplate")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        yield "spec.jobTemplate.spec", template["spec"]


def _of_job(spec: Document, path: str) -> Iterator[Violation]:
    plugins = spec.get("plugins")
    plugins = plugins if isinstance(plugins, dict) else {}
    if len(plugins) > MAX_PLUGINS:
        why, most = f"{len(plugins)} plugins", f"at most {MAX_PLUGINS}"
        yield Violation(path=f"{path}.plugins", reason=why, expected=most)
        return
    for name, arguments in plugins.items():
        yield from _too_many(arguments, f"{path}.plugins.{name[:100]}", "arguments", MAX_ARGUMENTS)
    tasks = spec.get("tasks")
    if not isinstance(tasks, list):
        return
    many = tuple(_too_many(tasks, f"{path}.tasks", "tasks", MAX_TASKS))
    yield from many
    for index, task in enumerate(() if many else tasks):
        template = task.get("template") if isinstance(task, dict) else None
        pod = template.get("spec") if isinstance(template, dict) else None
        if isinstance(pod, dict):
            yield from _of_pod(pod, f"{path}.tasks[{index}].template.spec")


def _of_pod(spec: Document, path: str) -> Iterator[Violation]:
    for part in ("containers", "initContainers"):
        containers = spec.get(part)
        many = tuple(_too_many(containers, f"{path}.{part}", "containers", MAX_CONTAINERS))
        yield from many
        if many or not isinstance(containers, list):
            continue
        for index, container in enumerate(containers):
            if isinstance(container, dict):
                where = f"{path}.{part}[{index}]"
                for words in ("command", "args"):
                    items = container.get(words)
                    yield from _too_many(items, f"{where}.{words}", "words", MAX_ARGUMENTS)
                for listed in ("env", "envFrom"):
                    items = container.get(listed)
                    yield from _too_many(items, f"{where}.{listed}", "entries", MAX_VARIABLES)


def _too_many(value: Any, path: str, what: str, most: int) -> Iterator[Violation]:
    if isinstance(value, list) and len(value) > most:
        yield Violation(path=path, reason=f"{len(value)} {what}", expected=f"at most {most}")
