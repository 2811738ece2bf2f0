"""The first step of `make`: checks that Python is new enough, then builds the environment.

Even Python 2.7 can read this file and print its one line, so it may contain no newer syntax; the
work is in `environment.py`.
"""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - older interpreters do get here
    sys.exit(
        "Stromboli needs Python 3.11 or later and this is %d.%d: install python3.11 "  # noqa: UP031 - Python 2.7 reads this
        "(Debian, Ubuntu: apt install python3.11 python3.11-venv), then: make PYTHON=python3.11"
        % sys.version_info[:2]
    )

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from tools import environment  # noqa: E402 - only a new enough Python may read it

if __name__ == "__main__":
    sys.exit(environment.main(ROOT))
