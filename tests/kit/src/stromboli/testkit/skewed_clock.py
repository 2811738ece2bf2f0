"""Runs a service with a wrong wall clock: ``python -m stromboli.testkit.skewed_clock S MODULE``.

``S`` is the number of seconds by which the clock of ``MODULE`` is ahead (negative: behind). Every
service reads its wall clock from ``runtime.utc_now``, so the shift is applied there before the
service is imported. Monotonic clocks are unchanged, as on a host with a wrong date.
"""

import runpy
import sys
from datetime import datetime, timedelta

from stromboli.shared.runtime import runtime


def main() -> None:
    """Shift the clock, then run the module as a program."""
    ahead = timedelta(seconds=float(sys.argv[1]))
    true_clock = runtime.utc_now

    def skewed_clock() -> datetime:
        return true_clock() + ahead

    runtime.utc_now = skewed_clock
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
