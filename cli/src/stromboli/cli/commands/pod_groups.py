"""``strom podgroup``: the PodGroups of jobs and of pods of other controllers."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import typer

from stromboli.cli import lazy, options
from stromboli.cli.parameters import selectors
from stromboli.cli.render import listing, output
from stromboli.client.operations import calls
from stromboli.shared.api import kinds, scheduling

app = typer.Typer(cls=lazy.GetGroup, help="Inspect PodGroups.")

HEADERS = ("NAME", "PHASE", "QUEUE", "MIN", "RUNNING", "SUCCEEDED", "FAILED", "AGE")
WIDE_HEADERS = ("OWNER", "PRIORITY", "MIN RESOURCES", "PENDING REASON")
CONDITION_HEADERS = ("TYPE", "STATUS", "REASON", "AGE", "MESSAGE")


@app.command("list")
def list_pod_groups(
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    all_namespaces: options.AllNamespaces = False,
    queue: options.QueueFilter = None,
    me: options.Me = False,
    selector: options.Selector = "",
    watch: options.Watch = False,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """List PodGroups."""
    wanted = options.selector(selector)
    is_wide = output_format is output.Format.WIDE

    submitter: str | None = None

    def is_wanted(group: scheduling.PodGroup) -> bool:
        is_there = queue in (None, group.spec.queue) and options.is_submitted_by(submitter, group)
        return is_there and selectors.matches(wanted, group.metadata.labels)

    def cells(group: scheduling.PodGroup, now: datetime) -> tuple[str, ...]:
        return row(group, now) + (wide_cells(group) if is_wide else ())

    pod_group_listing = listing.Listing(
        kind=kinds.POD_GROUPS,
        what="PodGroups",
        headers=HEADERS + (WIDE_HEADERS if is_wide else ()),
        row=cells,
        is_wanted=is_wanted,
        namespace=None if all_namespaces else namespace,
        state="PHASE",
    )
    with options.client(server) as client:
        submitter = options.submitter(client, is_me=me)
        if watch:
            call = calls.watch_pod_groups(pod_group_listing.namespace or "")
            listing.follow(client, pod_group_listing, output_format, call)
        else:
            listing.show(
                client,
                pod_group_listing,
                output_format,
                client.pod_groups(pod_group_listing.namespace),
            )


@app.command("get")
def get(
    name: Annotated[
        str,
        typer.Argument(
            metavar="PODGROUP", help="Name of the PodGroup.", autocompletion=options.pod_group_names
        ),
    ],
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    output_format: options.Output = output.Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show a PodGroup and its conditions."""
    with options.client(server) as client:
        raw = client.send(calls.pod_group(namespace, name))
        if not output_format.is_table:
            output.show_objects(output_format, kinds.POD_GROUPS, [raw])
            return
        group = client.decode(kinds.POD_GROUPS, raw)
    output.show_lines(facts(group))
    if group.status.conditions:
        output.show_lines([""])
        output.show_table(CONDITION_HEADERS, conditions(group, datetime.now(UTC)))


def row(group: scheduling.PodGroup, now: datetime) -> tuple[str, ...]:
    """A PodGroup as a row under ``HEADERS``."""
    spec, status = group.spec, group.status
    return (
        group.metadata.name,
        phase(group),
        spec.queue,
        str(spec.min_member),
        str(status.running),
        str(status.succeeded),
        str(status.failed),
        output.age(group.metadata.creation_timestamp, now),
    )


def wide_cells(group: scheduling.PodGroup) -> tuple[str, ...]:
    """The further cells of a PodGroup's row, under ``WIDE_HEADERS``."""
    spec = group.spec
    return (
        owner(group),
        spec.priority_class_name,
        _amounts(spec.min_resources),
        unschedulable_message(group),
    )


def facts(group: scheduling.PodGroup) -> list[str]:
    """The PodGroup's spec and status, a fact per line, without empty ones."""
    spec, status = group.spec, group.status
    needed = f"{spec.min_member}"
    if spec.min_task_member:
        needed += f" ({_amounts(spec.min_task_member)})"
    lines = {
        "podgroup": group.metadata.key,
        "phase": phase(group),
        "queue": spec.queue,
        "priority": spec.priority_class_name,
        "owner": owner(group),
        "min member": needed,
        "min resources": _amounts(spec.min_resources),
        "pods": f"{status.running} running, {status.succeeded} succeeded, {status.failed} failed",
    }
    return output.facts(*((label, text) for label, text in lines.items() if text))


def conditions(group: scheduling.PodGroup, now: datetime) -> list[tuple[str, ...]]:
    """The PodGroup's conditions under ``CONDITION_HEADERS``."""
    return [
        (it.type, it.status, it.reason, output.age(it.last_transition_time, now), it.message)
        for it in group.status.conditions
    ]


def phase(group: scheduling.PodGroup) -> str:
    """The PodGroup's phase; Pending before the scheduler has set one."""
    return group.status.phase or "Pending"


def owner(group: scheduling.PodGroup) -> str:
    """The kind and name of the PodGroup's owner."""
    owner_reference = group.metadata.controller
    return f"{owner_reference.kind}/{owner_reference.name}" if owner_reference else ""


def unschedulable_message(group: scheduling.PodGroup) -> str:
    """The message of its Unschedulable condition, empty if it is not True."""
    return next(
        (
            it.message
            for it in group.status.conditions
            if it.type == "Unschedulable" and it.status == "True"
        ),
        "",
    )


def _amounts(amounts: Mapping[str, object] | None) -> str:
    return ",".join(f"{name}={amount}" for name, amount in (amounts or {}).items())
