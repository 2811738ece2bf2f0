"""``python -m stromboli.monitor.agent``: reports the node's hardware until stopped.

    python -m stromboli.monitor.agent --once --print --sysfs DIR --nvml FILE

reads recorded data once, and prints the report.
"""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

import msgspec

from stromboli.monitor.agent import machine, nvml, reporting
from stromboli.monitor.agent.kubelet import Kubelet
from stromboli.monitor.agent.pod_usage import PodUsageReporter
from stromboli.monitor.agent.settings import AgentSettings
from stromboli.monitor.agent.usage import UsageReporter
from stromboli.shared import errors
from stromboli.shared.messages import base
from stromboli.shared.runtime import settings

log = logging.getLogger("stromboli.agent")
CGROUPS = "fs/cgroup"
"""The mounted cgroups, below the mounted sysfs."""
NO_KUBELET = "none"
"""Value of ``--kubelet`` for recorded data without a kubelet."""


def arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m stromboli.monitor.agent",
        description="Reads this node's hardware (NUMA nodes, CPUs, GPUs, NICs), its "
        "allocations, the loads of its disks and network, and what its pods use, and reports them "
        "to the monitor. "
        "Settings are STROM_AGENT_... variables.",
    )
    parser.add_argument("--sysfs", metavar="DIR", help="directory to read instead of /sys")
    parser.add_argument(
        "--nvml",
        metavar="FILE",
        help="recorded responses of the GPU driver (JSON) to read instead of it",
    )
    parser.add_argument(
        "--kubelet", metavar="DIR", help=f"the kubelet's directory; {NO_KUBELET!r} for no kubelet"
    )
    parser.add_argument("--once", action="store_true", help="read once and exit")
    parser.add_argument(
        "--print", action="store_true", help="print the report instead of sending it"
    )
    return parser.parse_args(argv)


def opened(
    options: argparse.Namespace, chosen: AgentSettings, driver: nvml.NvmlDriver | None
) -> machine.Machine:
    """The machine that the options select: this one, or recorded data without a driver."""
    answers = driver.read if driver is not None else machine.recorded(Path(options.nvml))
    folder = options.kubelet or (NO_KUBELET if options.sysfs else chosen.kubelet)
    kubelet = None if folder == NO_KUBELET else Kubelet(Path(folder))
    return machine.Machine(Path(options.sysfs or chosen.sysfs), answers, kubelet)


class Agent:
    """Reads the node, and sends changes and heartbeats. Without a ``monitor`` it prints the
    reports."""

    def __init__(
        self, read: machine.Machine, monitor: reporting.MonitorClient | None, chosen: AgentSettings
    ) -> None:
        self._machine = read
        self._monitor = monitor
        self._settings = chosen
        self._reported = ""
        self._reported_at_s = self._read_at_s = float("-inf")
        self._stamp: object = None
        self._trouble = ""
        self._pause_s = chosen.read_every_s

    def step(self, now_s: float) -> None:
        """Execute the steps that are due. An error is logged once, and the step is retried when it
        is due again.
        """
        stamp = self._machine.stamp()
        if stamp == self._stamp and now_s - self._read_at_s < self._pause_s:
            return
        self._stamp, self._read_at_s = stamp, now_s
        body = base.encode(self._machine.read(now_s))
        try:
            self._tell(body, now_s)
        except (errors.ExternalError, OSError) as error:
            if str(error) != self._trouble:
                log.warning("report not sent: %s", error)
            if not self._trouble:
                self._pause_s = self._settings.retry_period_s / 2
            self._trouble = str(error)
            # Another replica of the monitor may be the leader: retry soon, with growing delays.
            self._pause_s = min(2 * self._pause_s, self._settings.read_every_s)
        else:
            self._trouble = ""
            self._pause_s = self._settings.read_every_s

    def _tell(self, body: bytes, now_s: float) -> None:
        named = reporting.digest(body)
        if named == self._reported and self._monitor is None:
            return
        if self._monitor is None:
            sys.stdout.write(f"{msgspec.json.format(body, indent=2).decode()}\n")
            sys.stdout.flush()
        elif named == self._reported:
            if now_s - self._reported_at_s < self._settings.alive_every_s:
                return
            if not self._monitor.send_heartbeat(named):
                self._monitor.report(body)
        else:
            self._monitor.report(body)
            log.info("reported")
        self._reported, self._reported_at_s = named, now_s


def main(argv: list[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    options = arguments(argv)
    try:
        chosen = settings.load(AgentSettings, "agent", os.environ)
    except settings.SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if not options.print and not chosen.node:
        sys.stderr.write(
            "STROM_AGENT_NODE is not set: it names this node; in a pod take it from "
            "spec.nodeName, or call with --print\n"
        )
        return 2
    monitor = (
        None
        if options.print
        else reporting.MonitorClient(chosen.monitor, chosen.node, chosen.token_file, chosen.ca_file)
    )
    driver = nvml.NvmlDriver(nvml.load()) if options.nvml is None else None
    of_machine = opened(options, chosen, driver)
    agent = Agent(of_machine, monitor, chosen)
    sysfs = Path(options.sysfs or chosen.sysfs)
    usage = None if monitor is None else UsageReporter(sysfs, monitor, chosen.usage_every_s)
    pods = None
    if monitor is not None:
        pods = PodUsageReporter(
            sysfs / CGROUPS,
            monitor,
            lambda: of_machine.allocations,
            driver.usage if driver is not None else lambda _: {},
        )
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    while not stopping.is_set():
        agent.step(time.monotonic())
        if usage is not None:
            usage.step(time.monotonic())
        if pods is not None:
            pods.step(time.monotonic())
        if options.once:
            break
        stopping.wait(chosen.retry_period_s)
    if pods is not None:
        pods.close(time.monotonic())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
