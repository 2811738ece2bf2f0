"""The options ``--strom-...`` of Snakemake's command line."""

from dataclasses import dataclass, field

from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase


def _option(text: str, default: str = "") -> str:
    return field(default=default, metadata={"help": text, "env_var": False, "required": False})


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]  # Snakemake is not installed
    """Defaults for all jobs; resources of a rule (``strom_queue``, ``strom_image`` and
    ``strom_priority_class``) have precedence."""

    namespace: str = _option("Namespace of the jobs", "default")
    queue: str = _option("Queue of the jobs; without one the server chooses")
    priority_class: str = _option("PriorityClass of the jobs")
    image: str = _option(
        "Image with Snakemake and the programs of the rules; without one, jobs run with this "
        "Python, which works on process nodes only"
    )
    volume_claim: str = _option(
        "PersistentVolumeClaim with the working directory, mounted at --strom-mount-path"
    )
    mount_path: str = _option(
        "Where the volume is mounted in pods; the default is the working directory"
    )
