"""Option values that need no conversion, without the import of Pydantic.

Typer converts each value with Pydantic, whose import costs 60 ms of CPU. Most options are text, a
flag or a choice, and need no conversion. Every other value, and every invalid one, is converted by
Typer, which also writes the error.
"""

from enum import Enum
from typing import Any, get_args, get_origin

import typer
from typer._coercion import RuntimeParam, build_runtime_param

from stromboli.cli.parameters.object_names import bare


class PlainParam(RuntimeParam):
    """Returns values of ``str``, ``bool``, ``list[str]`` and enumerations unchanged, and names of
    objects without their kinds."""

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        return bare(getattr(param, "metavar", None), self._plain_value(value, param, ctx))

    def _plain_value(self, value: Any, param: Any, ctx: Any) -> Any:
        annotation: Any = self.annotation
        if self.parameter_info.parser is not None or param.type_descriptor.is_path:
            annotation = None  # converted in any case
        if get_origin(annotation) is list and get_args(annotation) == (str,):
            if all(isinstance(one, str) for one in value):
                return list(value)
        elif annotation in (str, bool) and isinstance(value, annotation):
            return value
        elif isinstance(annotation, type) and issubclass(annotation, Enum):
            if isinstance(value, annotation):
                return value
            if value in [member.value for member in annotation]:
                return annotation(value)
        return build_runtime_param(param.type_descriptor)._coerce_value(value, param, ctx)


def use_plain_values(command: Any) -> None:
    """Let the parameters of a command take plain values without Pydantic."""
    help_option = command.get_help_option(typer.Context(command))
    for param in (*command.params, help_option):
        descriptor = getattr(param, "type_descriptor", None)
        if descriptor is None:
            continue
        param._runtime_param = PlainParam(
            parameter_info=descriptor.parameter_info, annotation=descriptor.annotation
        )
