"""The first step of `make`: checks the version of Python, then builds the environment.

Python 2.7 must be able to parse this file and print its one-line message, so it may contain no
newer syntax. All other code is in `environment.py`.
"""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036 - older interpreters do run this
    sys.exit(
        "Stromboli needs Python 3.11 or later and this is %d.%d: install python3.11 "  # noqa: UP031 - Python 2.7 reads this
        "(Debian, Ubuntu: apt install python3.11 python3.11-venv), then: make PYTHON=python3.11"
        % sys.version_info[:2]
    )

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from tools import environment  # noqa: E402 - only a supported Python may parse it

if __name__ == "__main__":
    sys.exit(environment.main(ROOT))
