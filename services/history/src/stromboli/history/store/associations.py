"""Rows that belong to attempts and jobs: associations, devices and labels."""

from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from stromboli.history.core.rows import AttemptRow, JobRow, Rows
from stromboli.history.store import database, tables
from stromboli.shared import decoding

KEYS_PER_STATEMENT = 300
"""Associations of one SELECT, each of three values."""
SLICE = " ("
"""Follows the id of a device if only a slice of it was assigned: ``GPU-x (5000MiB)``."""
_ASSOCIATIONS = tables.ASSOCIATIONS.c
_DEVICES = decoding.decoder_of(dict[str, tuple[str, ...]])
_LABELS = decoding.decoder_of(dict[str, str])
Names = tuple[str, str, str]
"""Namespace, queue and user."""


async def associate(
    connection: AsyncConnection, rows: Rows, changed: Iterable[AttemptRow], regrouped: list[str]
) -> None:
    """Set the associations of changed attempts, and of all attempts of the jobs that have another
    queue or user. The transaction excludes other writers, so the next id is free."""
    names = {row.pod_uid: _names(row.namespace, rows.jobs.get(row.job_uid)) for row in changed}
    of_jobs = {uid: _names(rows.jobs[uid].namespace, rows.jobs[uid]) for uid in regrouped}
    ids = await _ids(connection, sorted({*names.values(), *of_jobs.values()}))
    for row in changed:
        job = rows.jobs.get(row.job_uid)
        # A deleted job whose row a late event created again has neither queue nor user.
        if not row.association or (job is not None and (job.queue or job.user_name)):
            row.association = ids[names[row.pod_uid]]
    for uid, each in of_jobs.items():
        await connection.execute(
            sa.update(tables.ATTEMPTS)
            .where(tables.ATTEMPTS.c.job_uid == uid)
            .values(association=ids[each])
        )


async def put_devices(
    opened: database.Database,
    connection: AsyncConnection,
    before: Mapping[str, AttemptRow],
    changed: Iterable[AttemptRow],
) -> None:
    """Store the devices of attempts whose devices or submission changed."""
    values = []
    for row in changed:
        old = before.get(row.pod_uid)
        if row.devices == "{}" or (
            old and (row.devices, row.submitted_at) == (old.devices, old.submitted_at)
        ):
            continue
        for device in sorted(_device_ids(row.devices)):
            row_values = {
                "pod_uid": row.pod_uid,
                "device": device,
                "submitted_at": row.submitted_at,
            }
            values.append(row_values)
    if values:
        insert = opened.insert(tables.ATTEMPT_DEVICES)
        key = [column.name for column in tables.ATTEMPT_DEVICES.primary_key]
        replaced = {"submitted_at": insert.excluded["submitted_at"]}
        statement = insert.on_conflict_do_update(index_elements=key, set_=replaced)
        await connection.execute(statement, values)


async def put_labels(
    connection: AsyncConnection, before: Mapping[str, JobRow], changed: Iterable[JobRow]
) -> None:
    """Replace the labels of jobs whose labels changed."""
    relabelled = {
        row.uid: _LABELS.decode(row.labels)
        for row in changed
        if row.labels != (before[row.uid].labels if row.uid in before else "{}")
    }
    if not relabelled:
        return
    for uid in relabelled:
        if uid in before:
            old = sa.delete(tables.JOB_LABELS).where(tables.JOB_LABELS.c.job_uid == uid)
            await connection.execute(old)
    values = [
        {"job_uid": uid, "label": f"{key}={value}"}
        for uid, labels in relabelled.items()
        for key, value in labels.items()
    ]
    if values:
        await connection.execute(sa.insert(tables.JOB_LABELS), values)


def device_id(text: str) -> str:
    """The id of a device, without the size of a slice."""
    return text.partition(SLICE)[0]


def _device_ids(devices: str) -> set[str]:
    return {device_id(it) for ids in _DEVICES.decode(devices).values() for it in ids}


def _names(namespace: str, job: JobRow | None) -> Names:
    return (namespace, job.queue, job.user_name) if job else (namespace, "", "")


async def _ids(connection: AsyncConnection, names: list[Names]) -> dict[Names, int]:
    ids = await _known(connection, names)
    missing = [each for each in names if each not in ids]
    if missing:
        last = (await connection.execute(sa.select(sa.func.max(_ASSOCIATIONS.id)))).scalar() or 0
        new_ids = {each: last + number for number, each in enumerate(missing, 1)}
        keys = ("id", "namespace", "queue", "user_name")
        values: list[dict[str, Any]] = [
            dict(zip(keys, (identity, *each), strict=True)) for each, identity in new_ids.items()
        ]
        await connection.execute(sa.insert(tables.ASSOCIATIONS), values)
        ids |= new_ids
    return ids


async def _known(connection: AsyncConnection, names: list[Names]) -> dict[Names, int]:
    ids: dict[Names, int] = {}
    key = sa.tuple_(_ASSOCIATIONS.namespace, _ASSOCIATIONS.queue, _ASSOCIATIONS.user_name)
    for begin in range(0, len(names), KEYS_PER_STATEMENT):
        chunk = names[begin : begin + KEYS_PER_STATEMENT]
        for row in await connection.execute(sa.select(tables.ASSOCIATIONS).where(key.in_(chunk))):
            ids[row.namespace, row.queue, row.user_name] = row.id
    return ids
