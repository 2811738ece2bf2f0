"""Device quotas of queues, for the plugin ``capacity``.

A queue's capability may name ``deviceclass/<class>``, a number of devices, and
``<dimension>.deviceclass/<class>``, an amount of their capacity. A class that it does not name is
not limited. A claim that several pods share is charged once per queue.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from stromboli.scheduler.core.cluster import device_claims
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.shared.formats import units

EXCEEDED = "dra-resource-exceeded"
"""The name that messages use for insufficient device quota, like the name of a resource."""


class DeviceUsage:
    """Devices that queues use, and devices of enqueued jobs."""

    def __init__(
        self,
        ssn: session.Session,
        chains: Callable[[str], Sequence[str]],
        *,
        with_capacity: bool,
    ) -> None:
        """``chains``: queue -> the queue and its ancestors."""
        self._session = ssn
        self._chains = chains
        self._with_capacity = with_capacity
        self._claims = device_claims.ClaimIndex(ssn.cluster)
        self._demands: dict[str, units.Amounts] = {}
        self._limits = {
            name: _limits(queue, with_capacity=with_capacity) for name, queue in ssn.queues.items()
        }
        self._allocated: dict[str, Counter[str]] = {}
        self._users: dict[tuple[str, str], set[str]] = {}
        self._inqueue: dict[str, Counter[str]] = {}
        for job in ssn.jobs.values():
            self.on_allocate(list(job.with_status(*entities.ALLOCATED)))
            if job.phase == "Inqueue" and job.key not in ssn.model.queue_usage.lapsed:
                self.note_enqueued(job)

    def fits(self, task: entities.Task, queue: str) -> bool:
        """Return whether the quotas of the queue and its ancestors have room for the task's
        devices."""
        return all(
            self._fits(name, self._allocated.get(name, {}), self._new(task, name))
            for name in self._chains(queue)
        )

    def admits(self, job: entities.Job) -> bool:
        """Return whether the job's minimum fits in addition to used and inqueue devices."""
        least = self.minimum(job)
        return all(
            self._fits(
                name, units.add(self._allocated.get(name, {}), self._inqueue.get(name, {})), least
            )
            for name in self._chains(job.queue)
        )

    def note_enqueued(self, job: entities.Job) -> None:
        """Count the devices that the job still lacks for its minimum as inqueue."""
        allocated_devices: units.Amounts = {}
        for task in job.with_status(*entities.ALLOCATED):
            allocated_devices = units.add(allocated_devices, self._of(task))
        for name in self._chains(job.queue):
            coming = self._inqueue.setdefault(name, Counter())
            for key, amount in self.minimum(job).items():
                coming[key] += max(amount - allocated_devices.get(key, 0), 0)

    def minimum(self, job: entities.Job) -> units.Amounts:
        """Return the devices that the job's minimum claims: for each role, the devices of its first
        task times its minimum; without minimums of roles, those of the first ``min_available``
        tasks. Tasks without claims are left out; the others are in the order of names."""
        tasks = sorted(job.tasks.values(), key=lambda task: (task.key, task.uid))
        chosen = [task for task in tasks if self._claims.of(task).claims]
        if job.task_min_available:
            of_role = dict(job.task_min_available)
            samples: dict[str, entities.Task] = {}
            for task in chosen:
                samples.setdefault(task.role, task)
            parts = [units.times(of_role.get(role, 0), self._of(samples[role])) for role in samples]
        else:
            parts = [self._of(task) for task in chosen[: job.min_available]]
        total: units.Amounts = {}
        for part in parts:
            total = units.add(total, part)
        return total

    def on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        """Charge the devices of placed tasks."""
        for task in tasks:
            self._add_usage(task, 1)

    def on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        """Release the devices of removed tasks."""
        for task in tasks:
            self._add_usage(task, -1)

    def _add_usage(self, task: entities.Task, times: int) -> None:
        job = self._session.job_of(task)
        if job is None:
            return
        for claim in self._claims.of(task).claims:
            key = claim.metadata.key
            for name in self._chains(job.queue):
                users = self._users.setdefault((name, key), set())
                was_used = bool(users)
                if times > 0:
                    users.add(task.uid)
                else:
                    users.discard(task.uid)
                if was_used is not bool(users):
                    usage = self._allocated.setdefault(name, Counter())
                    for each, amount in self._demand(key).items():
                        usage[each] += times * amount

    def _new(self, task: entities.Task, queue: str) -> units.Amounts:
        """Return the devices of the task's claims that the queue is not charged for yet."""
        total: units.Amounts = {}
        for claim in self._claims.of(task).claims:
            if not self._users.get((queue, claim.metadata.key)):
                total = units.add(total, self._demand(claim.metadata.key))
        return total

    def _of(self, task: entities.Task) -> units.Amounts:
        total: units.Amounts = {}
        for claim in self._claims.of(task).claims:
            total = units.add(total, self._demand(claim.metadata.key))
        return total

    def _demand(self, key: str) -> units.Amounts:
        amounts = self._demands.get(key)
        if amounts is None:
            try:
                amounts = device_claims.device_request(self._claims.by_key[key])
            except ValueError as error:
                self._session.complaints.append(f"resourceclaim {key}: {error}")
                amounts = {}
            if not self._with_capacity:
                amounts = {name: each for name, each in amounts.items() if _is_count(name)}
            self._demands[key] = amounts
        return amounts

    def _fits(self, queue: str, usage: Mapping[str, int], more: Mapping[str, int]) -> bool:
        limits = self._limits[queue]
        for name, amount in more.items():
            limit = limits.get(name)
            if limit is not None:
                # A count of zero sets no limit.
                if usage.get(name, 0) + amount > limit and not (limit <= 0 and _is_count(name)):
                    return False
            elif not _is_count(name) and _class_of(name) in {_class_of(each) for each in limits}:
                return False
        return True


def _limits(queue: entities.Queue, *, with_capacity: bool) -> units.Amounts:
    return {
        name: amount
        for name, amount in queue.capability.items()
        if device_claims.DEVICE_CLASS in name and (with_capacity or _is_count(name))
    }


def _is_count(name: str) -> bool:
    return name.startswith(device_claims.DEVICE_CLASS)


def _class_of(name: str) -> str:
    return name.partition(device_claims.DEVICE_CLASS)[2]


def is_needed(ssn: session.Session, names: Iterable[str]) -> bool:
    """Return whether any queue limits devices and any pod claims them."""
    return bool(ssn.cluster.resource_claims) and any(
        device_claims.DEVICE_CLASS in name for name in names
    )
