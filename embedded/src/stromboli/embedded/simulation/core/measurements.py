"""Measures a simulation while it runs. Every event costs O(1), apart from the series' buckets.

Definitions, with times in seconds from the first submission to the last end (*makespan*):

*Utilisation*: the integral of the requests of running tasks, divided by that of the nodes'
capacity. *Fragmentation*: of all idle capacity, the part on nodes that are partly used. It counts
GPUs, or CPU in a cluster without GPUs. *Share* of a queue: the largest of its parts of the
cluster's cpu, memory and GPUs (its dominant share). *Wait*: from submission to the first start of
the gang. *JCT*: from submission to end. *Data wait*: from the bind of a task with data sets
until its node has them.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping

from stromboli.embedded.simulation.core import fairness, job_runs, series
from stromboli.scheduler.core.placement import extension_points

Amounts = tuple[int, int, int]
_CPU, _GPU = 0, 2


class QueueMeter:
    """The usage of a queue and the number of its pending jobs, with their integrals over time."""

    def __init__(self, clockwork: series.Clockwork, time_us: int) -> None:
        self.used = [0, 0, 0]
        self.share = series.Series(clockwork, time_us)
        self.waiting = series.Series(clockwork, time_us)
        self.jobs = 0
        self.finished = 0
        self.evictions = 0
        self.used_integrals = [0, 0, 0]
        self.since_us = time_us
        self.waits_us = 0
        self.jct_us = 0

    def settle(self, time_us: int) -> None:
        """Add the usage since the last change to the integrals."""
        elapsed = time_us - self.since_us
        if elapsed:
            for at, amount in enumerate(self.used):
                self.used_integrals[at] += amount * elapsed
            self.since_us = time_us


class Measurements:
    """All measurements of a simulation."""

    def __init__(self) -> None:
        self.clockwork = series.Clockwork()
        self.queues: dict[str, QueueMeter] = {}
        self.total = [0, 0, 0]
        self.used = [0, 0, 0]
        self.total_integrals = [0, 0, 0]
        self.used_integrals = [0, 0, 0]
        self.idle_integral = 0
        self.idle_on_used_integral = 0
        self.utilisation = series.Series(self.clockwork)
        self.waiting = series.Series(self.clockwork)
        self.tiers: dict[str, series.Series] = {}
        """Kind of reason -> number of jobs that are pending for this reason."""
        self.fairness = fairness.Fairness()
        self._sampled_us = -1
        self.jcts_us = array("q")
        self.waits_us = array("q")
        self.jobs = 0
        self.data_waits = 0
        self.data_wait_us = 0
        self.evictions = 0
        self.evicted_tasks = 0
        self.first_submit_us = -1
        self.last_end_us = 0
        self._capacity: dict[str, Amounts] = {}
        self._node_used: dict[str, list[int]] = {}
        self._idle_on_used = 0
        self._since_us = 0

    # Cluster

    def add_node(self, name: str, capacity: Amounts, time_us: int) -> None:
        """Record that a node exists from now on."""
        self._settle(time_us)
        self._capacity[name] = capacity
        self._node_used.setdefault(name, [0, 0, 0])
        for at, amount in enumerate(capacity):
            self.total[at] += amount

    def remove_node(self, name: str, time_us: int) -> None:
        """Record that a node, which has no tasks any more, is lost."""
        self._settle(time_us)
        for at, amount in enumerate(self._capacity.pop(name)):
            self.total[at] -= amount

    @property
    def nodes(self) -> Collection[str]:
        """The nodes that exist now."""
        return self._capacity.keys()

    def used_on(self, node: str) -> Amounts:
        """The requests of the tasks that run on a node."""
        cpu, memory, gpus = self._node_used[node]
        return cpu, memory, gpus

    def capacity_of(self, node: str) -> Amounts:
        """The capacity of a node."""
        return self._capacity[node]

    @property
    def main_resource(self) -> int:
        """GPUs, or CPU in a cluster without GPUs."""
        return _GPU if self.total[_GPU] else _CPU

    # Jobs

    def submitted(self, run: job_runs.JobRun, time_us: int) -> None:
        """Record that a job was submitted and is pending."""
        if self.first_submit_us < 0:
            self.first_submit_us = time_us
            self._settle(time_us)
            self.total_integrals = [0, 0, 0]
            self.idle_integral = self.idle_on_used_integral = 0
        self.jobs += 1
        self._queue(run, time_us).jobs += 1
        self._count_waiting(run, 1, time_us)

    def started(self, run: job_runs.JobRun, time_us: int) -> None:
        """Record that the gang runs."""
        self._count_waiting(run, -1, time_us)

    def interrupted(self, run: job_runs.JobRun, time_us: int) -> None:
        """Record that the gang is pending again."""
        self._count_waiting(run, 1, time_us)

    def evicted(self, run: job_runs.JobRun, tasks: int, time_us: int) -> None:
        """Record that the job lost tasks by one decision or failure."""
        self.evictions += 1
        self.evicted_tasks += tasks
        self._queue(run, time_us).evictions += 1

    def data_arrived(self, waited_us: int) -> None:
        """Record that a task has its data sets."""
        self.data_waits += 1
        self.data_wait_us += waited_us

    def finished(self, run: job_runs.JobRun, time_us: int) -> None:
        """Record that the job has ended."""
        jct = time_us - run.job.submit_us
        wait = run.first_start_us - run.job.submit_us
        self.jcts_us.append(jct)
        self.waits_us.append(wait)
        meter = self._queue(run, time_us)
        meter.finished += 1
        meter.jct_us += jct
        meter.waits_us += wait
        self.last_end_us = time_us

    def placed(self, run: job_runs.JobRun, nodes: Iterable[str], time_us: int) -> None:
        """Record that tasks of the job run on these nodes from now on, one for each name."""
        self._change(run, nodes, time_us, 1)

    def released(self, run: job_runs.JobRun, nodes: Iterable[str], time_us: int) -> None:
        """Record that tasks of the job no longer run on these nodes, one for each name."""
        self._change(run, nodes, time_us, -1)

    def explained(self, waiting_by_tier: Mapping[str, int], time_us: int) -> None:
        """Record the number of pending jobs by kind of reason, as explained by a session."""
        for tier, count in waiting_by_tier.items():
            if tier not in self.tiers:
                self.tiers[tier] = series.Series(self.clockwork, time_us)
            if self.tiers[tier].value != count:
                self.tiers[tier].change(count, time_us)

    def needs_sample(self, time_us: int) -> bool:
        """Whether the fairness of this session is to be sampled: once per bucket of the series."""
        return bool(self.waiting.value) and time_us - self._sampled_us >= self.clockwork.width_us

    def sample(
        self, gauges: Iterable[extension_points.Gauge], total: Mapping[str, float], time_us: int
    ) -> None:
        """Record the gauges of a session."""
        self._sampled_us = time_us
        self.fairness.sample(gauges, total, time_us)

    def close(self, time_us: int) -> None:
        """Settle all integrals at the end."""
        self._settle(time_us)
        for meter in self.queues.values():
            meter.settle(time_us)

    # Internal

    def _queue(self, run: job_runs.JobRun, time_us: int) -> QueueMeter:
        name = run.job.queue
        if name not in self.queues:
            self.queues[name] = QueueMeter(self.clockwork, time_us)
        return self.queues[name]

    def _count_waiting(self, run: job_runs.JobRun, change: int, time_us: int) -> None:
        self.waiting.change(self.waiting.value + change, time_us)
        if not self.waiting.value:
            self.fairness.pause(time_us)
        waiting = self._queue(run, time_us).waiting
        waiting.change(waiting.value + change, time_us)

    def _change(self, run: job_runs.JobRun, nodes: Iterable[str], time_us: int, sign: int) -> None:
        self._settle(time_us)
        meter = self._queue(run, time_us)
        meter.settle(time_us)
        request = run.job.resources.amounts()
        main = self.main_resource
        for name in nodes:
            used, capacity = self._node_used[name], self._capacity[name][main]
            before = capacity - used[main] if used[main] else 0
            for at, amount in enumerate(request):
                used[at] += sign * amount
                meter.used[at] += sign * amount
                self.used[at] += sign * amount
            after = capacity - used[main] if used[main] else 0
            self._idle_on_used += after - before
        shares = (used / all_ for used, all_ in zip(meter.used, self.total, strict=True) if all_)
        meter.share.change(max(shares, default=0.0), time_us)
        total = self.total[main]
        self.utilisation.change(self.used[main] / total if total else 0.0, time_us)

    def _settle(self, time_us: int) -> None:
        elapsed = time_us - self._since_us
        if not elapsed:
            return
        for at in range(3):
            self.used_integrals[at] += self.used[at] * elapsed
            self.total_integrals[at] += self.total[at] * elapsed
        main = self.main_resource
        self.idle_integral += (self.total[main] - self.used[main]) * elapsed
        self.idle_on_used_integral += self._idle_on_used * elapsed
        self._since_us = time_us
