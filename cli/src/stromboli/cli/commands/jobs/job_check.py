"""``strom job run --check``: dry run of admission and of a scheduling session for a job."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from stromboli.cli.errors import CommandError
from stromboli.cli.render import explanation_view, output
from stromboli.client.responses import Explanation
from stromboli.shared.formats import counts
from stromboli.shared.messages.scheduling import PodGroupExplained

if TYPE_CHECKING:
    from stromboli.cli.client import Client

ENTRY_POINTS = "stromboli.trials"
"""Entry point group of the dry run. The distribution with the scheduler registers it; the CLI has
no scheduler."""
WAITS = 4
"""Exit code for a job that would be admitted and pending."""
NODES_SHOWN = 8
EVICTED_SHOWN = 5

Configuration = Annotated[
    str | None,
    typer.Option(
        "--scheduler-configuration",
        metavar="FILE",
        help="With --check: a scheduler configuration file. [default: the built-in one]",
    ),
]


class DryRunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a scheduling session about a job.

    ``nodes`` maps a node to the number of pods that would start there. ``evicted`` lists the
    victims. ``explained`` is the reason why the job would be pending, None if there is none.
    ``in_front`` lists the PodGroups before it in its queue, None if its position is unknown.
    ``configuration`` names the scheduler's configuration. ``quotas`` lists the ResourceQuotas that
    would reject its pods, with their numbers.
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
        """Whether the session would bind pods of the job now, and no ResourceQuota rejects them."""
        return bool(self.nodes) and not self.quotas


Trial = Callable[[Sequence[bytes | msgspec.Raw], bytes, str | None, datetime], DryRunResult]


def check(
    client: "Client", document: dict[str, Any], configuration: str | None, wanted: output.Format
) -> int:
    """Print the result of the dry run; returns the exit code. Raises RejectedError."""
    (completed,) = client.check([document])
    where = f"{completed.namespace}/{completed.name}"
    trial = _load_dry_run()
    if trial is None:
        raise CommandError(
            f"job {where}",
            "it would be admitted; the scheduler for the dry run is not installed",
            "install stromboli-embedded",
        )
    try:
        scheduling_input = client.scheduling_input()
    except CommandError as error:
        if getattr(error, "violations", None) is None:
            raise
        raise CommandError(
            f"job {where}",
            "it would be admitted; the dry run of the scheduler needs the right to read the "
            f"whole cluster: {error.why}",
            "submit it, and use: strom explain JOB",
        ) from None
    verdict = trial(
        scheduling_input.items, bytes(completed.object), configuration, datetime.now(UTC)
    )
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
    """The result as lines of text."""
    lines = [f"{job} would be admitted."]
    if verdict.starts:
        bound = sum(verdict.nodes.values())
        named = [f"{count} on {node}" for node, count in verdict.nodes.items()]
        pods = counts.counted(verdict.pods, "pod")
        lines.append(f"It would start now: {bound} of {pods}, {_join_names(named)}.")
    elif verdict.evicted:
        lines.append(
            f"It would start after the eviction of {counts.counted(len(verdict.evicted), 'pod')}."
        )
    if verdict.evicted:
        named = list(verdict.evicted)
        lines.append(f"  evicted    {_join_names(named, EVICTED_SHOWN)}")
    if verdict.quotas:
        lines.append("It would not start now: a ResourceQuota rejects its pods.")
        lines += [f"  {each}" for each in verdict.quotas]
    elif not verdict.starts:
        explanation = Explanation(
            job, "Pending", verdict.pod_group, verdict.explained, verdict.in_front
        )
        if verdict.pods == 0:
            lines.append("It has no replicas, so no pod would start.")
        elif verdict.explained is None:
            lines.append("It would be pending for a short time; no lasting reason is known.")
        else:
            headline, *facts = explanation_view.render(explanation)
            lines += [headline.replace(" is pending: ", " would be pending: "), *facts]
    lines.append(f"  scheduler  configuration: {verdict.configuration}")
    return lines


def _join_names(names: list[str], most: int = NODES_SHOWN) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _load_dry_run() -> Trial | None:
    """The installed dry run, None if there is none."""
    from stromboli.shared import entry_points  # 25 ms that other commands need not pay

    for entry in entry_points.of_group(ENTRY_POINTS):
        trial: Trial = entry.load()
        return trial
    return None
