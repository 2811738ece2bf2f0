"""What a receiver of agents' reports needs of a monitor that is the leader."""

from datetime import timedelta

from stromboli.monitor import agent_receiver
from stromboli.monitor.core import data_reports, pod_usage_reports, reports, usage_reports
from stromboli.shared import envelope

SILENCE = timedelta(seconds=90)


def publishing_to(published: list[envelope.Draft | None]) -> agent_receiver.ActiveTerm:
    """A term in which every node exists and every draft is appended to a list."""

    async def append(draft: envelope.Draft) -> None:
        published.append(draft)

    return agent_receiver.ActiveTerm(
        put=published.append,
        is_there=lambda _: True,
        reports=reports.NodeReports(SILENCE),
        put_data=published.append,
        data=data_reports.DataReports(SILENCE),
        wanted=data_reports.WantedData(),
        put_usage=published.append,
        usage=usage_reports.UsageReports(SILENCE),
        append_pod_usage=append,
        pod_usage=pod_usage_reports.PodUsageReports(),
        pod_uid=lambda _: "",
    )
