"""Generates ``docs/asyncapi.yaml``: every topic, for consumers in any language.

    python -m stromboli.shared.asyncapi [--check]

With ``--check`` it writes nothing and exits with 1 if the file is out of date. All content is
derived from ``topics`` and the message types.
"""

import pathlib
import re
import sys
from collections.abc import Iterable
from inspect import cleandoc
from typing import Any

import msgspec
import yaml
from msgspec import inspect

from stromboli.shared import topics
from stromboli.shared.messages import admission, base, cluster

FILE = pathlib.Path(__file__).parents[4] / "docs" / "asyncapi.yaml"
_SCHEMAS = "#/components/schemas/"
_GONE = "ObjectGone"

_ABOUT = """\
All topics of Stromboli. A topic has one partition and one writer; its bindings give its retention.
Topics with `x-stability: stable` are an interface for integrations: their messages grow by
optional fields, a new meaning is a new type, and old versions remain readable. The others may
change with a release.

A record is a CloudEvent in Kafka's binary mode: the header `ce_type` has its type, its value is
JSON. Ignore unknown types and fields. Delivery is at least once: a repeated record has the same
`ce_id`, which is writer/epoch/sequence. A writer announces its epoch on each of its topics, on its
main topic by `opened`, whose epoch is the larger of its offset and its `floor`. Drop a record
whose epoch is lower than the highest one announced on its topic (its writer has been replaced), or
higher (it was not announced). Epochs never decrease, even where a topic was deleted and created
again. Several writers append to `admission.*` concurrently and do not replace each other."""

_NAME = re.compile(r"``(\w+)``")
_FIELD = re.compile(r"``\w+``(?:(?:,| and) ``\w+``)*: ")
_TEXT = {"type": "string"}
_PLAIN: dict[type[inspect.Type], dict[str, Any]] = {
    inspect.AnyType: {},
    inspect.StrType: _TEXT,
    inspect.IntType: {"type": "integer"},
    inspect.FloatType: {"type": "number"},
    inspect.BoolType: {"type": "boolean"},
    inspect.NoneType: {"type": "null"},
    inspect.DateTimeType: {"type": "string", "format": "date-time"},
    inspect.BytesType: {"type": "string", "contentEncoding": "base64"},
    inspect.RawType: {"description": "any JSON, unchanged"},
}
_ENVELOPE = {
    "type": "object",
    "required": ["ce_specversion", "ce_id", "ce_type", "ce_source", "ce_cluster", "ce_time"],
    "properties": {
        "ce_specversion": {"const": "1.0"},
        "ce_id": {
            **_TEXT,
            "description": (
                "writer/epoch/sequence; for the record `opened`, which determines the epoch, "
                "writer/opened/UUID"
            ),
            "examples": ["controller/41/7"],
        },
        "ce_type": {**_TEXT, "description": "the message's name, with its version"},
        "ce_source": {**_TEXT, "description": "/clusters/CLUSTER/WRITER"},
        "ce_cluster": {**_TEXT, "description": "name of the Kubernetes cluster"},
        "ce_time": {"type": "string", "format": "date-time", "description": "time of the event"},
        "ce_cause": {**_TEXT, "description": "ce_id of the event that led to this one"},
        "traceparent": {**_TEXT, "description": "W3C trace context of the submission"},
        "content-type": {"const": "application/json"},
    },
}
_SUBMISSION = {
    "type": "object",
    "required": ["ce_id", "ce_type", "ce_source", "ce_time", "authorization"],
    "properties": {
        "ce_id": {
            **_TEXT,
            "maxLength": 255,
            "description": "chosen by the client, unique per ce_source; a record that repeats it "
            "is not executed again",
        },
        "ce_type": {"const": base.type_name(admission.ObjectsSubmitted)},
        "ce_source": {**_TEXT, "maxLength": 255, "description": "identifies the client program"},
        "ce_time": {
            "type": "string",
            "format": "date-time",
            "description": "time of the submission; rejected if older than 15 minutes (by default)",
        },
        "authorization": {
            **_TEXT,
            "description": "Bearer and a token of the audience stromboli-submissions",
        },
        "traceparent": {**_TEXT, "description": "W3C trace context of the client"},
    },
}
_TOMBSTONE = {
    "allOf": [{"$ref": _SCHEMAS + "Envelope"}],
    "required": ["ce_objectuid", "ce_objectversion"],
    "properties": {
        "ce_objectuid": {**_TEXT, "description": "uid of the deleted object"},
        "ce_objectversion": {**_TEXT, "description": "its last resourceVersion"},
    },
}


class _Writer(yaml.SafeDumper):
    """A YAML dumper that writes no aliases, which would be hard to follow in a long file, and uses
    block style for text of several lines.
    """

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _as_it_reads(writer: _Writer, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return writer.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Writer.add_representer(str, _as_it_reads)


def document() -> dict[str, Any]:
    """The AsyncAPI 3.0 document."""
    schemas: dict[str, Any] = {}
    for info in inspect.multi_type_info(base.TYPES.values()):
        _schema(info, schemas)
    messages = {struct.__name__: _message(struct) for struct in base.TYPES.values()}
    messages[_GONE] = _gone()
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Stromboli's log",
            "version": "1",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {topic.name: _channel(topic) for topic in topics.ALL},
        "operations": {f"write {topic.name}": _operation(topic) for topic in topics.ALL},
        "components": {
            # Sorted: the order of imports is not meaningful.
            "messages": {name: messages[name] for name in sorted(messages)},
            "schemas": {
                "Envelope": _ENVELOPE,
                "SubmissionEnvelope": _SUBMISSION,
                "TombstoneEnvelope": _TOMBSTONE,
            }
            | dict(sorted(schemas.items())),
        },
    }


def _names(topic: topics.Topic) -> Iterable[str]:
    yield from (struct.__name__ for struct in topic.carries)
    if cluster.Unreadable in topic.carries:
        yield _GONE


def _channel(topic: topics.Topic) -> dict[str, Any]:
    writer = topic.writer or "everyone"
    return {
        "address": f"{{cluster}}.{topic.name}",
        "description": f"Written by {writer}; key: {topic.key}.",
        "parameters": {
            "cluster": {"description": "name of the Kubernetes cluster", "default": "default"}
        },
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _names(topic)},
        "bindings": {"kafka": {"partitions": 1, "topicConfiguration": _configuration(topic)}},
        "x-stability": "stable" if topic.stable else "internal",
        "x-writer": writer,
        "x-key": topic.key,
    }


def _configuration(topic: topics.Topic) -> dict[str, Any]:
    """The retention settings of a topic that the Kafka binding can express."""
    known: dict[str, Any] = {"cleanup.policy": [topic.settings["cleanup.policy"]]}
    if "retention.ms" in topic.settings:
        known["retention.ms"] = int(topic.settings["retention.ms"])
    return known | {"max.message.bytes": int(topic.settings["max.message.bytes"])}


def _operation(topic: topics.Topic) -> dict[str, Any]:
    return {
        "action": "send",
        "channel": {"$ref": f"#/channels/{topic.name}"},
        "summary": f"{topic.writer or 'everyone'} writes",
    }


def _message(struct: type[msgspec.Struct]) -> dict[str, Any]:
    envelope = "SubmissionEnvelope" if struct is admission.ObjectsSubmitted else "Envelope"
    return {
        "name": base.type_name(struct),
        "summary": _summary(struct),
        "headers": {"$ref": _SCHEMAS + envelope},
        "payload": {"$ref": _SCHEMAS + struct.__name__},
    }


def _schema(of: inspect.Type, schemas: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a type; schemas of Structs are added to ``schemas``.

    msgspec's generator fails on a field whose default is raw JSON, which some of our fields have.
    """
    match of:
        case inspect.StructType(cls=struct):
            if struct.__name__ not in schemas:
                schemas[struct.__name__] = {}  # ends the recursion of a type that contains itself
                schemas[struct.__name__] = _struct_schema(of, schemas)
            return {"$ref": _SCHEMAS + struct.__name__}
        case inspect.UnionType(types=types):
            return {"anyOf": [_schema(one, schemas) for one in types]}
        case inspect.LiteralType(values=values):
            return {"enum": list(values)}
        case inspect.VarTupleType(item_type=item):
            return {"type": "array", "items": _schema(item, schemas)}
        case inspect.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _schema(value, schemas)}
        case _:
            return dict(_PLAIN[type(of)])


def _struct_schema(of: inspect.StructType, schemas: dict[str, Any]) -> dict[str, Any]:
    required = [field.encode_name for field in of.fields if field.required]
    described = field_descriptions(of.cls)
    return {
        "type": "object",
        "description": _summary(of.cls),
        **({"required": required} if required else {}),
        "properties": {
            field.encode_name: _described(_schema(field.type, schemas), described.get(field.name))
            for field in of.fields
        },
    }


def _described(schema: dict[str, Any], description: str | None) -> dict[str, Any]:
    """The schema of a field with its description; siblings of ``$ref`` are allowed by JSON schema
    2020-12, which AsyncAPI 3 extends."""
    return schema if description is None else {**schema, "description": description}


def _text(struct: type[msgspec.Struct]) -> str:
    """The docstring on one line."""
    return " ".join(cleandoc(struct.__doc__ or "").split())


def _summary(struct: type[msgspec.Struct]) -> str:
    """The sentences of the docstring before its first description of a field."""
    text = _text(struct)
    first = _FIELD.search(text)
    before = text if first is None else text[: first.start()].strip()
    return before if before.endswith((".", ":")) else text


def field_descriptions(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Field -> its description in the docstring: the text after ``name``: and before the next
    field."""
    text = _text(struct)
    matches = list(_FIELD.finditer(text))
    ends = [*(each.start() for each in matches[1:]), len(text)]
    return {
        name: text[each.end() : end].strip(" ;.")
        for each, end in zip(matches, ends, strict=False)
        for name in _NAME.findall(each.group())
    }


def _gone() -> dict[str, Any]:
    return {
        "name": cluster.GONE,
        "summary": "The object was deleted: a record without value.",
        "headers": {"$ref": _SCHEMAS + "TombstoneEnvelope"},
        "payload": {"type": "null"},
    }


def text() -> str:
    """The expected content of the file."""
    body = yaml.dump(document(), Dumper=_Writer, sort_keys=False, allow_unicode=True, width=100)
    return f"# Written by `python -m stromboli.shared.asyncapi` from the message types.\n{body}"


def main(arguments: list[str]) -> None:
    """Write the file, or compare it with ``--check``."""
    if arguments == ["--check"]:
        if not FILE.is_file() or FILE.read_text(encoding="utf-8") != text():
            sys.exit(f"{FILE.name} is not up to date: run python -m stromboli.shared.asyncapi")
    elif arguments:
        sys.exit("usage: python -m stromboli.shared.asyncapi [--check]")
    else:
        FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
