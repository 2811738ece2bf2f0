"""Generates docs/settings.md, the page about all settings, from the services' settings Structs.

    python -m tools.docs.settings [--check]

With ``--check`` nothing is written, and the exit status is 1 if the file is out of date.
"""

import ast
import importlib
import inspect
import sys
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec

from stromboli.monitor.agent.settings import AgentSettings
from stromboli.monitor.data_cache.settings import Settings as DataCacheSettings
from stromboli.shared.bus.kafka import KafkaSettings
from stromboli.shared.cluster.kubernetes import KubernetesSettings
from stromboli.shared.leader_election import LeaseSettings
from tools.docs import markdown

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "settings.md"
SHARED: tuple[tuple[str, str, type[msgspec.Struct], str], ...] = (
    ("Kafka", "STROM_KAFKA_", KafkaSettings, "The same in every service."),
    (
        "Kubernetes",
        "STROM_KUBERNETES_",
        KubernetesSettings,
        "The same in every service that uses the API server.",
    ),
    (
        "leases",
        "STROM_LEASE_",
        LeaseSettings,
        "The same in every service: one of several replicas is the leader. All replicas of "
        "admission serve webhooks and REST; one of them consumes submissions.",
    ),
    ("the agent on every node", "STROM_AGENT_", AgentSettings, "In the agents of the monitor."),
    (
        "the data cache on every node",
        "STROM_DATA_CACHE_",
        DataCacheSettings,
        "In the [data caches](data-caches.md) of nodes.",
    ),
)
_SECRETS = ("password", "token", "secret")
_HEAD = """# Settings

Written from the code by `python -m tools.docs.settings`; do not edit.

A service reads its settings from the environment once, at its start. It exits with a list of all
invalid ones: values of a wrong type, and unknown names with its prefix. Lists are separated by
commas. Secrets are masked when settings are logged.

`strom` reads `STROM_SERVER` (the address of the REST API) and `STROM_NAMESPACE`; with
`STROM_TRACEBACK=1` it prints a traceback after an internal error. Services send traces to
`OTEL_EXPORTER_OTLP_ENDPOINT`.
"""


class Setting(msgspec.Struct, frozen=True):
    """A setting as the page shows it."""

    name: str
    kind: str
    default: str
    text: str


def rendered() -> str:
    """The content of the page."""
    sections = [
        (path.name, f"STROM_{path.name.upper()}_", _settings_of(path.name))
        for path in sorted((ROOT / "services").iterdir())
        if (path / "src").is_dir()
    ]
    lines = [_HEAD]
    for title, prefix, struct, said in (*((*section, "") for section in sections), *SHARED):
        lines += [f"## {title}", ""]
        if said:
            lines += [said, ""]
        rows = (
            (markdown.code(it.name), it.kind, it.default, it.text)
            for it in settings(struct, prefix)
        )
        lines += [*markdown.table(("variable", "type", "default", ""), rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def settings(struct: type[msgspec.Struct], prefix: str) -> Iterator[Setting]:
    """All fields of a Struct except nested Structs, which are separate sections. Raises LookupError
    for a nested Struct without a section."""
    texts = documented(struct)
    for field in msgspec.structs.fields(struct):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            if field.type not in {shared for _, _, shared, _ in SHARED}:
                raise LookupError(f"{field.type.__name__} has no section")
            continue
        yield Setting(
            name=prefix + field.name.upper(),
            kind=_kind(field.type),
            default=_default(field),
            text=texts.get(field.name, ""),
        )


def documented(struct: type) -> dict[str, str]:
    """Field -> the docstring below it, in the Struct and its base classes."""
    found: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if each in (object, msgspec.Struct) or not issubclass(each, msgspec.Struct):
            continue
        body = typing.cast(
            ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        )
        for statement, below in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                text = str(below.value.value)
                found[statement.target.id] = " ".join(text.replace("``", "`").split())
    return found


def _settings_of(service: str) -> type[msgspec.Struct]:
    module = importlib.import_module(f"stromboli.{service}.settings")
    found: type[msgspec.Struct] = module.Settings
    return found


def _kind(annotation: object) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return "one of " + ", ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {_kind(arguments[0])}"
    if arguments:
        return " or ".join(_kind(each) for each in arguments if each is not type(None))
    names = {str: "text", int: "number", float: "number", bool: "true or false"}
    return names.get(typing.cast(type, annotation), getattr(annotation, "__name__", ""))


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "none"
    value = field.default
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    if isinstance(value, bool):
        value = str(value).lower()
    if any(word in field.name for word in _SECRETS) or value in ("", None, msgspec.NODEFAULT):
        return ""
    return markdown.code(value)


if __name__ == "__main__":
    made = rendered()
    if sys.argv[1:] == ["--check"]:
        if not FILE.is_file() or FILE.read_text(encoding="utf-8") != made:
            sys.exit("docs/settings.md is out of date; run python -m tools.docs.settings")
    else:
        FILE.write_text(made, encoding="utf-8")
        print(f"wrote {FILE}")
