"""A history without any records, which records the queries."""

from typing import Any

from stromboli.shared.api.views import accounting


class EmptyHistory:
    """``accounting.History`` with empty pages. ``requested``: the queries in order."""

    def __init__(self) -> None:
        self.requested: list[Any] = []

    async def attempts(self, query: accounting.AttemptQuery) -> accounting.AttemptPage:
        """Return an empty page."""
        self.requested.append(query)
        return accounting.AttemptPage(attempts=())

    async def jobs(self, query: accounting.JobQuery) -> accounting.JobPage:
        """Return an empty page."""
        self.requested.append(query)
        return accounting.JobPage(jobs=())

    async def evictions(self, query: accounting.EvictionQuery) -> accounting.EvictionPage:
        """Return an empty page."""
        self.requested.append(query)
        return accounting.EvictionPage(evictions=())

    async def changes(self, query: accounting.ChangeQuery) -> accounting.ChangePage:
        """Return an empty page."""
        self.requested.append(query)
        return accounting.ChangePage(changes=())

    async def explanations(self, query: accounting.ExplanationQuery) -> accounting.ExplanationPage:
        """Return an empty page."""
        self.requested.append(query)
        return accounting.ExplanationPage(explanations=())

    async def usage(self, query: accounting.UsageQuery) -> accounting.UsageReport:
        """Return an empty report."""
        self.requested.append(query)
        return accounting.UsageReport(since=query.since, until=query.until, usage=())
