"""What Airflow's provider manager reads: the connection type, the executor and its options."""

from typing import Any

SECTION = "stromboli"


def provider_info() -> dict[str, Any]:
    """The description of this provider, in the schema of ``airflow/provider_info.schema.json``."""
    return {
        "package-name": "stromboli-airflow",
        "name": "Stromboli",
        "description": "Tasks as jobs of Stromboli, a batch system for Kubernetes",
        "connection-types": [
            {
                "connection-type": "stromboli",
                "hook-class-name": "stromboli.airflow.hook.StromboliHook",
                "hook-name": "Stromboli",
            }
        ],
        "cli": [],
        "executors": ["stromboli.airflow.executor.StromboliExecutor"],
        "config": {
            SECTION: {
                "description": "Options of stromboli.airflow.executor.StromboliExecutor.",
                "options": {
                    name: {
                        "description": text,
                        "type": "string",
                        "version_added": None,
                        "example": None,
                        "default": default,
                    }
                    for name, (default, text) in OPTIONS.items()
                },
            }
        },
    }


OPTIONS: dict[str, tuple[str, str]] = {
    "server": ("", "URL of the server; the default is that of the Python client."),
    "token_file": ("", "File with a bearer token for a server with accounts."),
    "ca_file": ("", "CA certificate of the server (PEM)."),
    "namespace": ("default", "Namespace of the jobs."),
    "image": (
        "",
        "Image with Airflow and the packages of the DAGs. Without one, tasks run with the "
        "scheduler's Python, which works only on process nodes of its machine.",
    ),
    "queues": (
        "",
        "JSON: Airflow queue -> Stromboli queue. A queue that is not listed has the same name in "
        "Stromboli, except [operators] default_queue: for it, the server chooses the queue.",
    ),
    "requests": ("", "JSON: requests of each pod; the default is one CPU."),
    "priority_class": ("", "PriorityClass of the jobs."),
    "environment": ("", "JSON: environment variables of each pod."),
    "pod_template_file": (
        "",
        "YAML file with a pod template, which the executor completes: volumes, secrets, service "
        "account. Its first container runs the task.",
    ),
    "ended_ttl_s": ("600", "Seconds after which an ended job is deleted."),
}
"""Option -> its default and description."""
