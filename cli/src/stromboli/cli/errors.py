"""What goes wrong in a command, in the words and exit codes that users and scripts see.

::

    CommandError            exit 1: refused or failed
    ├── UsageError          exit 2: what was written makes no sense
    ├── NotFoundError       there is no such object
    ├── UnreachableError    exit 3: no server answers
    └── TimedOutError       exit 124: what was waited for has not come

Commands of other distributions raise these too, and ``strom`` shows them alike.
"""

REFUSED = 1
MISUSED = 2
UNREACHABLE = 3
TIMED_OUT = 124
"""As ``timeout`` of coreutils has it. 2 is also the option parser's."""


class CommandError(Exception):
    """Shown as ``strom: <what>: <why>``, the details a line each, and ``next: <next_step>``."""

    exit_code = REFUSED

    def __init__(self, what: str, why: str, next_step: str, details: tuple[str, ...] = ()) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what
        self.why = why
        self.next_step = next_step
        self.details = details

    def lines(self) -> list[str]:
        """The whole message."""
        details = [f"  {detail}" for detail in self.details]
        return [f"strom: {self.what}: {self.why}", *details, f"next: {self.next_step}"]


class UsageError(CommandError):
    """What the user wrote, in a file of options, makes no sense."""

    exit_code = MISUSED


class NotFoundError(CommandError):
    """There is no object of this name."""


class UnreachableError(CommandError):
    """Nobody answers at the server's address."""

    exit_code = UNREACHABLE


class TimedOutError(CommandError):
    """What was waited for has not come in time."""

    exit_code = TIMED_OUT
