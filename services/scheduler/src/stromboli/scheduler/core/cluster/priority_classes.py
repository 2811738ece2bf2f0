"""Priority classes, and the jobs whose priority depends on each.

A change of a class costs O(jobs that name it). A change of the default priority also costs O(jobs
that name no class or an unknown one).
"""

from stromboli.shared.api import core


class PriorityClasses:
    """Priority classes by name, unreadable ones, and jobs by the name of their class."""

    def __init__(self) -> None:
        self._known: dict[str, core.PriorityClass] = {}
        self._unread: dict[str, str] = {}
        self._jobs: dict[str, dict[str, None]] = {}
        self._default = 0

    def put(self, priority_class: core.PriorityClass) -> list[str]:
        """Add or update a class. Returns the affected jobs."""
        name = priority_class.metadata.name
        self._unread.pop(name, None)
        self._known[name] = priority_class
        return self._concerned(name)

    def put_unreadable(self, name: str, reason: str) -> list[str]:
        """Add a class that cannot be decoded. Returns the affected jobs."""
        self._known.pop(name, None)
        self._unread[name] = reason
        return self._concerned(name)

    def remove(self, name: str) -> list[str]:
        """Remove a class. Returns the affected jobs."""
        self._known.pop(name, None)
        self._unread.pop(name, None)
        return self._concerned(name)

    def enter(self, job: str, name: str) -> None:
        """Record that a job names this class. ``name``: empty if the job names none."""
        self._jobs.setdefault(name, {})[job] = None

    def remove_job(self, job: str, name: str) -> None:
        """Record that the job is gone or names another class."""
        named = self._jobs.get(name, {})
        named.pop(job, None)
        if not named:
            self._jobs.pop(name, None)

    def value(self, name: str) -> int:
        """The value of the class, else that of the global default, else 0."""
        priority_class = self._known.get(name)
        return self._default if priority_class is None else priority_class.value

    def problem(self, name: str) -> str:
        """Why jobs that name the class are frozen: neither scheduled nor evicted. Empty if they are
        not frozen."""
        reason = self._unread.get(name)
        return "" if reason is None else f"PriorityClass {name} cannot be read: {reason}"

    def _concerned(self, name: str) -> list[str]:
        defaults = [
            priority_class.value
            for priority_class in self._known.values()
            if priority_class.global_default
        ]
        before, self._default = self._default, max(defaults, default=0)
        names = {name}
        if self._default != before:
            names |= self._jobs.keys() - self._known.keys()
        return [job for each in sorted(names) for job in self._jobs.get(each, ())]
