"""``strom explain JOB --at TIME --log LOG``: why a job was pending, computed from the log."""

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from stromboli.cli.errors import CommandError
from stromboli.cli.render import explanation_view, output
from stromboli.client.responses import Explanation
from stromboli.shared.formats import counts
from stromboli.shared.messages.scheduling import PodGroupExplained

ENTRY_POINTS = "stromboli.past"
"""The entry point group of the replay, which a distribution with a scheduler provides."""


class PastAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of a job's PodGroup at one time: ``placed`` of its ``pods`` were on nodes.
    ``explained``: why it was pending, None if nothing blocked it; ``in_front``: the PodGroups in
    front of it, None if its position is not known. ``is_decided``: it was admitted or placed just
    then."""

    pod_group: str
    phase: str
    pods: int
    placed: int
    is_decided: bool
    explained: PodGroupExplained | None
    in_front: tuple[str, ...] | None


Explain = Callable[[str, Sequence[str], str, str, datetime], list[PastAnswer]]
"""(log, configuration files, namespace, job, time) -> the PodGroups of the job at that time."""


def show(
    namespace: str,
    name: str,
    at: datetime,
    log: str,
    configs: Sequence[str],
    output_format: output.DocumentFormat,
) -> None:
    """Print the explanation of a job at a time. Raises CommandError."""
    what = f"job {namespace}/{name}"
    explain = _load()
    if explain is None:
        why = "--at replays the log with the scheduler, which is not installed"
        raise CommandError(what, why, "install stromboli-embedded")
    past_answers = explain(log, configs, namespace, name, at)
    if output_format is not output.DocumentFormat.TABLE:
        output.show_document(output_format, msgspec.to_builtins(past_answers))
    elif not past_answers:
        why = f"it had no PodGroup at {at.isoformat()}"
        raise CommandError(what, why, f"see when it existed: strom history {name} -n {namespace}")
    else:
        for each in past_answers:
            output.show_lines(render(f"{namespace}/{name}", each, at))


def render(job: str, past_answer: PastAnswer, at: datetime) -> list[str]:
    """The explanation as lines of text."""
    when = f"at {at.isoformat()}"
    if past_answer.explained is None:
        pods = counts.counted(past_answer.pods, "pod")
        state = f"{past_answer.placed} of {pods} on nodes"
        just = "; it was admitted or placed just then" if past_answer.is_decided else ""
        return [f"{job} was not blocked {when}: {state}{just}."]
    explanation = Explanation(
        job, past_answer.phase, past_answer.pod_group, past_answer.explained, past_answer.in_front
    )
    headline, *facts = explanation_view.render(explanation)
    return [headline.replace(" is pending: ", f" was pending {when}: ", 1), *facts]


def _load() -> Explain | None:
    from stromboli.shared import entry_points  # 25 ms that other commands need not pay

    for entry in entry_points.of_group(ENTRY_POINTS):
        explain: Explain = entry.load()
        return explain
    return None
