"""``strom explain JOB --at TIME``: why a job was pending, from the log."""

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from stromboli.cli.commands.accounting.explain_at import PastAnswer
from stromboli.cli.errors import CommandError
from stromboli.embedded import log_reading, scheduler_file, state_folder
from stromboli.scheduler import configuration_file, discovery
from stromboli.scheduler.core import policy
from stromboli.scheduler.core.replay import explain_past

_UID = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_BROKER = re.compile(r"(?P<address>[^/]+:[0-9]+)(/(?P<cluster>[a-z0-9.-]+))?")


def explain(
    log: str, configs: Sequence[str], namespace: str, name: str, at: datetime
) -> list[PastAnswer]:
    """Explain a job at a past time: one PodGroup for each job of this name that existed. ``log``:
    the value of ``--log``; empty for the default folder. ``configs``: files of the configurations
    that may have been in force. Raises CommandError."""
    registry = discovery.discover_plugins()
    known = [scheduler_file.read(each).configuration for each in configs]
    known.append(configuration_file.load_default(registry).configuration)
    broker = _BROKER.fullmatch(log)
    place = (
        log_reading.Place(state_folder.STATE, broker["address"], broker["cluster"] or "default")
        if broker
        else log_reading.Place(Path(log) if log else state_folder.STATE)
    )
    what = f"job {namespace}/{name} at {at.isoformat()}"
    records = log_reading.records(place)
    keys = [
        key
        for key in explain_past.pod_groups_of(records, f"{namespace}/{name}-", at)
        if _UID.sub("", key) == f"{namespace}/{name}"
    ]
    try:
        past_gangs = explain_past.explain_past(
            records, at, keys, known, policy.Policy(), registry.find
        )
    except explain_past.TooEarlyError as error:
        next_step = "wait until the monitor has written a complete state"
        if error.oldest is not None:
            next_step = f"use a time from {error.oldest.isoformat()} on"
        raise CommandError(what, str(error), next_step) from None
    except explain_past.UnknownConfigurationError as error:
        next_step = "pass the configuration that was in force then: --config FILE"
        raise CommandError(what, str(error), next_step) from None
    return [
        PastAnswer(
            pod_group=each.pod_group,
            phase=each.phase,
            pods=each.pods,
            placed=each.placed,
            is_decided=each.is_decided,
            explained=each.explained,
            in_front=each.in_front,
        )
        for each in past_gangs
    ]
