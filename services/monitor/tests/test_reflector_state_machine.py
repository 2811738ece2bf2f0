"""Whatever happens to cluster, log and monitors: in the end the log equals the cluster."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from services.monitor.tests import simulation
from stromboli.testkit.strategies import depth

NAMES = st.sampled_from(["a", "b"])


class ReflectorMachine(RuleBasedStateMachine):
    """One monitor at a time, and those before it, who may wake up and append what they had."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = simulation.Cluster()
        self.log = simulation.Log()
        self.asleep: list[simulation.Monitor] = []

    @initialize()
    def begins(self) -> None:
        self.monitor = simulation.Monitor(self.cluster, self.log)

    @rule(name=NAMES, cpu=st.integers(1, 2))
    def a_node_is_written(self, name: str, cpu: int) -> None:
        self.cluster.put(name, cpu)

    @rule(name=NAMES)
    def a_node_is_deleted(self, name: str) -> None:
        if name in self.cluster.objects:
            self.cluster.delete(name)

    @rule()
    def the_watch_brings_a_change(self) -> None:
        self.monitor.watch()

    @rule()
    def a_list_is_made(self) -> None:
        self.monitor.list()

    @rule(count=st.integers(1, 3))
    def drafts_are_appended(self, count: int) -> None:
        self.monitor.append(count)

    @rule()
    def the_log_is_followed(self) -> None:
        self.monitor.follow()

    @rule()
    def overwritten_keys_are_restored(self) -> None:
        self.monitor.restore()

    @rule()
    def the_monitor_marks_as_synced(self) -> None:
        self.monitor.mark_synced()

    @rule()
    def the_cluster_forgets_its_history(self) -> None:
        self.cluster.forget()

    @rule()
    def the_log_is_compacted(self) -> None:
        self.log.compact()

    @rule()
    def the_monitor_is_replaced(self) -> None:
        self.asleep.append(self.monitor)
        self.monitor = simulation.Monitor(self.cluster, self.log)

    @precondition(lambda self: self.asleep)
    @rule(which=st.integers(0, 100))
    def a_replaced_monitor_wakes_up_and_appends(self, which: int) -> None:
        self.asleep[which % len(self.asleep)].append(1)

    def teardown(self) -> None:
        self.monitor.settle()
        assert self.log.cached() == self.cluster.truth()
        self.log.compact()
        assert self.log.cached() == self.cluster.truth()
        again = simulation.Monitor(self.cluster, self.log)
        again.settle()
        assert again.said == []


TestReflectorMachine = ReflectorMachine.TestCase
TestReflectorMachine.settings = settings(depth.examples(60), stateful_step_count=40)
