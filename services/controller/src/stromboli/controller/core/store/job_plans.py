"""Plans of jobs: pods that a session may place before they exist.

Plans are materialized from ``batch.plans``, so that a new leader withdraws the plans that the
previous leader published. All other state here (pod specs and jobs that are not to be planned,
names of pods that a decision creates) is kept for one term.
"""

import contextlib
from collections.abc import Collection, Iterator, Set

from stromboli.controller.core.store.admission_configuration import AdmissionConfiguration
from stromboli.controller.core.store.dry_run_answers import DryRunAnswers
from stromboli.shared import envelope, errors
from stromboli.shared.messages import plans

MOST_REJECTED = 10_000
"""Maximum number of pod specs that are recorded as not to be planned. Once it is reached, no
further job is planned in this term."""


class JobPlans:
    """The newest plan of each PodGroup. ``admission``: the cluster's admission configuration; None
    if it is unknown, or if no job is to be planned."""

    def __init__(self) -> None:
        self.admission: AdmissionConfiguration | None = None
        self.answers = DryRunAnswers()
        self._is_full = False
        self._found: dict[str, plans.PodsPlanned] = {}
        self._of_job: dict[str, set[str]] = {}
        self._unplannable: dict[str, int] = {}
        self._rejected: set[str] = set()
        self._reserved: dict[str, frozenset[str]] = {}

    @property
    def is_on(self) -> bool:
        """Whether pods may be created with their nodes."""
        return self.admission is not None and not self.admission.problem and not self._is_full

    def of(self, pod_group: str) -> plans.PodsPlanned | None:
        """The plan of a PodGroup; None without one."""
        return self._found.get(pod_group)

    def of_job(self, job: str) -> list[plans.PodsPlanned]:
        """All plans of jobs with this key, including the plans of a deleted job."""
        return [self._found[key] for key in sorted(self._of_job.get(job, ()))]

    def apply(self, record: envelope.Record) -> str:
        """Apply a record of the topic. Returns why it could not be decoded, or an empty string."""
        try:
            message = envelope.decode(record)
        except errors.UndecodableError as error:
            self.put(record.key, None)
            return error.reason
        self.put(record.key, message if isinstance(message, plans.PodsPlanned) else None)
        return ""

    def put(self, pod_group: str, plan: plans.PodsPlanned | None) -> None:
        """Note the newest plan of a PodGroup, None if it was withdrawn."""
        before = self._found.pop(pod_group, None)
        if before is not None:
            self._of_job[before.job].discard(pod_group)
            if not self._of_job[before.job]:
                del self._of_job[before.job]
        if plan is not None:
            self._found[pod_group] = plan
            self._of_job.setdefault(plan.job, set()).add(pod_group)

    # Jobs and pods that are not planned

    def exclude(self, job_uid: str, version: int) -> None:
        """Do not plan this version of a job."""
        self._unplannable[job_uid] = version

    def is_excluded(self, job_uid: str, version: int) -> bool:
        """Whether this version of the job must not be planned."""
        return self._unplannable.get(job_uid) == version

    def differs(self, spec_digest: str) -> None:
        """Note that a created pod differs from its plan. If no cached answer explains that, the API
        server changes created pods differently from the dry run, and pods of this spec are not
        planned again."""
        if self.answers.differs(spec_digest):
            return
        if len(self._rejected) < MOST_REJECTED:
            self._rejected.add(spec_digest)
        else:
            self._is_full = True

    def is_rejected(self, spec_digest: str) -> bool:
        """Whether pods with this spec must not be planned."""
        return spec_digest in self._rejected

    def forget(self, job_uid: str) -> None:
        """Drop the data of a deleted job."""
        self._unplannable.pop(job_uid, None)

    # Decisions in flight

    @contextlib.contextmanager
    def reserved(self, job_uid: str, pods: Collection[str]) -> Iterator[None]:
        """Reserve the names of planned pods while a decision creates them."""
        if not pods:
            yield
            return
        self._reserved[job_uid] = frozenset(pods)
        try:
            yield
        finally:
            self._reserved.pop(job_uid, None)

    def reserved_names(self, job_uid: str) -> Set[str]:
        """Names of pods of the job that a decision is creating."""
        return self._reserved.get(job_uid, frozenset())
