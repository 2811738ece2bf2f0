"""Errors of commands, with the messages and exit codes that users and scripts see.

::

    CommandError            exit 1: rejected or failed
    ├── UsageError          exit 2: invalid command line or file
    ├── NotFoundError       the object does not exist
    ├── ConflictedError     the name exists, or the object changed since it was read
    ├── UnavailableError    the server does not execute the request now
    ├── UnreachableError    exit 3: no server answers
    └── TimedOutError       exit 124: a wait timed out

Commands of other distributions raise these too, and ``strom`` shows them in the same form.
"""

REFUSED = 1
MISUSED = 2
UNREACHABLE = 3
TIMED_OUT = 124
"""The exit code that ``timeout`` of coreutils uses. Exit code 2 is the option parser's, too."""
INTERRUPTED = 130
"""The exit code after SIGINT, as in a shell: 128 + 2."""


class CommandError(Exception):
    """A command failed. Shown as ``strom: <what>: <why>``, one line per detail, and ``next:
    <next_step>``."""

    exit_code = REFUSED

    def __init__(self, what: str, why: str, next_step: str, details: tuple[str, ...] = ()) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what
        self.why = why
        self.next_step = next_step
        self.details = details

    def lines(self) -> list[str]:
        """The lines of the message for users."""
        details = [f"  {detail}" for detail in self.details]
        return [f"strom: {self.what}: {self.why}", *details, f"next: {self.next_step}"]


class UsageError(CommandError):
    """An invalid command line, or an invalid file of options."""

    exit_code = MISUSED


class NotFoundError(CommandError):
    """No object has this name."""


class ConflictedError(CommandError):
    """The name exists already, or the object changed since it was read."""


class UnavailableError(CommandError):
    """The server does not execute the request now; the same request may succeed later."""


class UnreachableError(CommandError):
    """No response from the server's address."""

    exit_code = UNREACHABLE


class TimedOutError(CommandError):
    """The awaited state was not reached in time."""

    exit_code = TIMED_OUT
