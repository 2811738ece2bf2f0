"""``strom job run --check``: would a job be admitted, would it start now, what is in its way."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from stromboli.cli.commands import explain
from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.client.responses import Explanation
from stromboli.shared.messages.scheduling import PodGroupExplained

if TYPE_CHECKING:
    from stromboli.cli.client import Client

ENTRY_POINTS = "stromboli.trials"
"""Who can hold a session adds itself under this group: the scheduler is none of ours."""
WAITS = 4
"""Exit code for a job that would be admitted and would wait."""
NODES_SHOWN = 8
EVICTED_SHOWN = 5

Configuration = Annotated[
    str | None,
    typer.Option(
        "--scheduler-configuration",
        metavar="FILE",
        help="With --check: the scheduler's configuration, as volcano-scheduler.conf. "
        "[default: the built-in one]",
    ),
]


class DryRunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a session would decide on a job.

    ``nodes``: node -> pods that would start there. ``evicted``: pods that would have to go for it.
    ``explained``: why it would wait, None if nothing is in its way. ``in_front``: PodGroups before
    it in its queue, None if its place is not known. ``configuration``: what the session went by.
    ``quotas``: those of its namespace that would refuse its pods, with their numbers.
    """

    pod_group: str
    pods: int
    nodes: dict[str, int]
    evicted: tuple[str, ...]
    explained: PodGroupExplained | None
    in_front: tuple[str, ...] | None
    configuration: str
    complaints: tuple[str, ...] = ()
    quotas: tuple[str, ...] = ()

    @property
    def starts(self) -> bool:
        """Whether pods of it would be made and bound at once."""
        return bool(self.nodes) and not self.quotas


Trial = Callable[[Sequence[bytes | msgspec.Raw], bytes, str | None, datetime], DryRunResult]


def check(
    client: "Client", document: dict[str, Any], configuration: str | None, wanted: output.Format
) -> int:
    """Show what would become of a job; returns the exit code. Raises RefusedError."""
    (completed,) = client.check([document])
    where = f"{completed.namespace}/{completed.name}"
    trial = _load_dry_run()
    if trial is None:
        raise CommandError(
            f"job {where}",
            "it would be admitted; whether it would start cannot be tried here",
            "install stromboli-embedded, which brings the scheduler",
        )
    try:
        seen = client.scheduling_input()
    except CommandError as error:
        if getattr(error, "violations", None) is None:
            raise
        raise CommandError(
            f"job {where}",
            "it would be admitted; whether it would start now takes the right to see the whole "
            f"cluster: {error.why}",
            "submit it, and see why it waits with: strom explain JOB",
        ) from None
    verdict = trial(seen.items, bytes(completed.object), configuration, datetime.now(UTC))
    for complaint in verdict.complaints:
        output.show_note(f"strom: {complaint}")
    if wanted.is_table:
        output.show_lines(render(where, verdict))
    elif wanted is output.Format.NAME:
        output.show_lines([where])
    else:
        output.show_document(wanted, msgspec.to_builtins(verdict))
    return 0 if verdict.starts else WAITS


def render(job: str, verdict: DryRunResult) -> list[str]:
    """What would become of it, in lines."""
    lines = [f"{job} would be admitted."]
    if verdict.starts:
        bound = sum(verdict.nodes.values())
        named = [f"{count} on {node}" for node, count in verdict.nodes.items()]
        lines.append(f"It would start now: {bound} of {verdict.pods} pods, {_join_names(named)}.")
    elif verdict.evicted:
        lines.append(f"It would start once {len(verdict.evicted)} pods have gone for it.")
    if verdict.evicted:
        named = list(verdict.evicted)
        lines.append(f"  evicted    {_join_names(named, EVICTED_SHOWN)}")
    if verdict.quotas:
        lines.append("It would not start now: its pods would be refused.")
        lines += [f"  {each}" for each in verdict.quotas]
    elif not verdict.starts:
        told = Explanation(job, "Pending", verdict.pod_group, verdict.explained, verdict.in_front)
        if verdict.pods == 0:
            lines.append("It asks for no pods, so nothing would start until it is scaled.")
        elif verdict.explained is None:
            lines.append("It would not start at once, and nothing that lasts is in its way.")
        else:
            headline, *facts = explain.render(told)
            lines += [headline.replace(" waits: ", " would wait: "), *facts]
    lines.append(f"  tried by   the scheduler's configuration: {verdict.configuration}")
    return lines


def _join_names(names: list[str], most: int = NODES_SHOWN) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _load_dry_run() -> Trial | None:
    """The session that is installed, if one is."""
    from importlib import metadata  # 25 ms that other commands need not pay

    for entry in metadata.entry_points(group=ENTRY_POINTS):
        trial: Trial = entry.load()
        return trial
    return None
