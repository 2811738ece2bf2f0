"""Measures the loads of disks and network interfaces, and reports them."""

import logging
from pathlib import Path

from stromboli.monitor.agent import io_counters, reporting
from stromboli.monitor.core import io_load
from stromboli.shared import errors
from stromboli.shared.messages import base, node_usage

log = logging.getLogger("stromboli.agent")


class UsageReporter:
    """Takes a sample every ``io_load.SAMPLE_EVERY_S``, and sends noticeable changes immediately and
    the rest every ``every_s`` seconds. ``root``: the mounted sysfs."""

    def __init__(self, root: Path, monitor: reporting.MonitorClient, every_s: float) -> None:
        self._root = root
        self._monitor = monitor
        self._every_s = every_s
        self._meter = io_load.LoadMeter()
        self._sent: node_usage.NodeLoad | None = None
        self._sent_at_s = float("-inf")
        self._last_error = ""

    def step(self, now_s: float) -> None:
        """Execute the steps that are due. A failed report is logged once, and sent again with the
        next sample."""
        if not self._meter.is_due(now_s):
            return
        self._meter.add(io_counters.read(self._root, now_s))
        usage = self._meter.usage()
        is_late = now_s - self._sent_at_s >= self._every_s
        if not usage.window_s or not (is_late or io_load.is_news(self._sent, usage)):
            return
        try:
            self._monitor.report_usage(base.encode(usage))
        except (errors.ExternalError, OSError) as error:
            if str(error) != self._last_error:
                log.warning("loads not sent: %s", error)
            self._last_error = str(error)
        else:
            self._last_error = ""
            self._sent, self._sent_at_s = usage, now_s
