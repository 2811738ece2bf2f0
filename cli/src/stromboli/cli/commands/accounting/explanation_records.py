"""Why a job was pending, as the history recorded it: at a time, and over time."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from stromboli.cli.errors import CommandError
from stromboli.cli.parameters import time_options
from stromboli.cli.render import explanation_view, output
from stromboli.client.responses import Explanation
from stromboli.shared import decoding
from stromboli.shared.api.views import accounting
from stromboli.shared.messages.scheduling import PodGroupExplained

if TYPE_CHECKING:
    from stromboli.cli.client import Client

HEADERS = ("TIME", "FOR", "PENDING BECAUSE", "IN FRONT")
_TEXTS: Mapping[str, str] = {str(tier): text for tier, text in explanation_view.TIERS.items()}
_NEXT_INSTANT = timedelta(microseconds=1)


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A job at a time: its phase, the explanation that was in force, None if there was none, and
    its last known position in the queue."""

    job: str
    uid: str
    phase: str
    explanation: accounting.PastExplanation | None = None
    position: accounting.QueuePosition | None = None


def read(client: "Client", namespace: str, name: str, at: datetime) -> RecordedAnswer:
    """What the history has about the last job of this name at a time. Raises CommandError."""
    from stromboli.client.operations import accounting_calls

    what = f"job {namespace}/{name}"
    jobs = client.send(accounting_calls.jobs(accounting.JobQuery(namespace=namespace, name=name)))
    record = next((it for it in jobs.jobs if it.submitted_at and it.submitted_at <= at), None)
    if record is None:
        raise CommandError(
            what,
            f"the history has no such job at {at.isoformat()}",
            f"see when it existed: strom history {name} -n {namespace}",
        )
    if record.deleted_at is not None and record.deleted_at <= at:
        raise CommandError(
            what,
            f"it was deleted at {record.deleted_at.isoformat()}",
            f"see its life: strom timeline {name} -n {namespace}",
        )
    query = accounting.ExplanationQuery(
        namespace=namespace, uid=record.uid, until=at + _NEXT_INSTANT, limit=1
    )
    page = client.send(accounting_calls.explanations(query))
    phases = [it.phase for it in record.phases if it.at <= at]
    explanation = page.explanations[0] if page.explanations else None
    is_pending = explanation is not None and explanation.explained is not None
    return RecordedAnswer(
        job=f"{namespace}/{name}",
        uid=record.uid,
        phase=phases[-1] if phases else "Pending",
        explanation=explanation,
        position=page.positions[0] if is_pending and page.positions else None,
    )


def show(
    client: "Client",
    namespace: str,
    name: str,
    at: datetime,
    output_format: output.DocumentFormat,
) -> None:
    """Print why a job was pending at a time. Raises CommandError."""
    answer = read(client, namespace, name, at)
    if output_format is output.DocumentFormat.TABLE:
        output.show_lines(render(answer, at))
    else:
        output.show_document(output_format, msgspec.to_builtins(answer))


def render(answer: RecordedAnswer, at: datetime) -> list[str]:
    """The answer as lines of text."""
    when = f"at {at.isoformat()}"
    known = answer.explanation
    if known is None and answer.phase == "Pending":
        return [f"{answer.job} was Pending {when}; the scheduler had not explained it."]
    if known is None or known.explained is None:
        return [f"{answer.job} was not blocked {when}: it was {answer.phase}."]
    explained = decoding.convert(known.explained, PodGroupExplained)
    explanation = Explanation(answer.job, answer.phase, known.pod_group, explained, None)
    position = "position unknown"
    if answer.position is not None:
        as_of = time_options.short(answer.position.at)
        position = f"position {answer.position.in_front + 1} as of {as_of}"
    headline, *facts = explanation_view.render(explanation, position=position)
    first_line = headline.replace(" is pending: ", f" was pending {when}: ", 1)
    return [first_line, *facts, f"  {'as of':<10} {time_options.short(known.at)} UTC"]


def rows(
    explanations: Sequence[accounting.PastExplanation],
    positions: Sequence[accounting.QueuePosition],
    until: datetime,
) -> Iterator[tuple[str, ...]]:
    """Rows under ``HEADERS``, the earliest first. ``until``: the end of the last explanation."""
    ordered = sorted(explanations, key=lambda it: it.at)
    ends = (*(it.at for it in ordered[1:]), until)
    for each, end in zip(ordered, ends, strict=False):
        if each.explained is None:
            continue
        there = sorted((it.at, it.in_front) for it in positions if each.at <= it.at < end)
        numbers = [str(in_front) for _, in_front in there]
        yield (
            time_options.short(each.at),
            output.age(each.at, end),
            _TEXTS.get(each.explained.get("tier", ""), "unknown reason"),
            " to ".join(dict.fromkeys((*numbers[:1], *numbers[-1:]))),
        )
