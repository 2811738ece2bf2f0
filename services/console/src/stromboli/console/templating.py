"""Pages from templates. Every value is escaped: names, messages and annotations are users' input.

Static files have a digest of their content in their URL, so that browsers cache them
indefinitely.
"""

import functools
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
import msgspec

from stromboli.cli.render.nodes import node_layout
from stromboli.console.core import amounts, cluster_rows, evictions, job_rows
from stromboli.console.core.url_filters import UrlFilters
from stromboli.shared.api.views import accounting

TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
"""Ending of a static file -> its content type."""


class StaticFile(msgspec.Struct, frozen=True):
    """A static file, which is sent unchanged."""

    content: bytes
    media_type: str
    digest: str


@functools.cache
def static_files() -> Mapping[str, StaticFile]:
    """Name -> file. Read once."""
    files_by_name = {}
    for file in resources.files("stromboli.console").joinpath("static").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:12]
            files_by_name[file.name] = StaticFile(content, kind, digest)
    return files_by_name


def page(template: str, values: Mapping[str, Any]) -> bytes:
    """The rendered template as UTF-8. Raises jinja2.UndefinedError for a value that is missing."""
    return environment().get_template(template).render(values).encode()


def query(filters: UrlFilters, **changes: Any) -> str:
    """The filters with these changes as the query of a URL; see ``UrlFilters.fields``."""
    return "?" + urlencode(filters.fields(**changes))


@functools.cache
def environment() -> jinja2.Environment:
    """The Jinja environment with the filters, globals and tests of the templates."""
    jinja_environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stromboli.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja_environment.filters |= {
        "segment": lambda text: quote(str(text), safe=""),
        "query": query,
        "iso": _iso,
        "utc": _utc,
        "amount": lambda value, resource: amounts.text(resource, value),
        "bytes": node_layout.format_bytes,
        "gpus": lambda value: amounts.text(amounts.GPU_NAMES[0], value),
    }
    jinja_environment.globals |= {
        "static": lambda name: f"/static/{static_files()[name].digest}/{name}",
        "SORTS": job_rows.SORTS,
        "PHASE_GROUPS": tuple(job_rows.GROUPS),
        "MOST_HOLDERS": cluster_rows.MOST_HOLDERS,
        "STATES": accounting.STATES,
        "GROUPS": accounting.GROUPS,
        "REASONS": evictions.REASONS,
        "CHANGED_KINDS": accounting.CHANGED_KINDS,
    }
    jinja_environment.tests["over"] = lambda phase: (
        phase in ("Completed", "Failed", "Terminated", "Aborted")
    )
    return jinja_environment


def _iso(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).isoformat()


def _utc(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
