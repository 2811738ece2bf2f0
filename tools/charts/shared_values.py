"""The values that all charts share, which are appended to the values file of each chart."""

from pathlib import Path

SOURCE = "charts/common/global.yaml"
CHARTS = (
    "charts/stromboli",
    "services/admission/chart",
    "services/console/chart",
    "services/controller/chart",
    "services/history/chart",
    "services/monitor/chart",
    "services/scheduler/chart",
)


def files(root: Path) -> dict[str, str]:
    """Path -> content of each chart's values file: its own values, then the shared ones. Everything
    from the first line of the shared values on is replaced."""
    shared = (root / SOURCE).read_text(encoding="utf-8")
    first = shared.splitlines()[0]
    found = {}
    for chart in CHARTS:
        name = f"{chart}/values.yaml"
        own, marker, _ = (root / name).read_text(encoding="utf-8").partition(first)
        if not marker:
            own += "\n"
        found[name] = own + shared
    return found
