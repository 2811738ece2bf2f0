"""An Airflow of the tests: database, API server, scheduler, DAG processor and triggerer."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

EXECUTOR = "stromboli.airflow.executor.StromboliExecutor"
DEADLINE_S = 600
PARTS = ("api-server", "dag-processor", "scheduler", "triggerer")
UNFINISHED = frozenset({"queued", "running"})
CONFIGURATION = """
[core]
dags_folder = {home}/dags
load_examples = False
executor = {executor}
parallelism = 8
execution_api_server_url = http://127.0.0.1:{api}/execution/
simple_auth_manager_all_admins = True
fernet_key =
dags_are_paused_at_creation = False
[database]
sql_alchemy_conn = sqlite:///{home}/airflow.db?timeout=120
[api]
host = 127.0.0.1
port = {api}
workers = 1
secret_key = {secret}
[api_auth]
jwt_secret = {secret}{secret}{secret}{secret}
[logging]
base_log_folder = {home}/logs
worker_log_server_port = {worker_logs}
trigger_log_server_port = {trigger_logs}
[scheduler]
scheduler_heartbeat_sec = 1
orphaned_tasks_check_interval = 5
scheduler_health_check_threshold = 30
scheduler_idle_sleep_time = 0.2
[workers]
execution_api_timeout = 120
[triggerer]
triggerer_heartbeat_sec = 1
job_heartbeat_sec = 1
[dag_processor]
refresh_interval = 5
min_file_process_interval = 5
[operators]
default_deferrable = False
[stromboli]
server = {server}
requests = {{"cpu": "100m"}}
"""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


class Airflow:
    """The processes of one Airflow, and its REST API."""

    def __init__(self, home: Path, server: str) -> None:
        self.home = home
        self._variables = {
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "STROM_SERVER": server,
            "PYTHONDONTWRITEBYTECODE": "",  # each process would compile Airflow, 10 s
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        api, worker_logs, trigger_logs = free_ports(3)
        text = CONFIGURATION.format(
            home=home,
            executor=EXECUTOR,
            api=api,
            worker_logs=worker_logs,
            trigger_logs=trigger_logs,
            secret=secrets.token_hex(16),
            server=server,
        )
        (home / "airflow.cfg").write_text(text)
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{api}", trust_env=False, timeout=120)

    def run(self, *words: str) -> str:
        """The output of a command of Airflow."""
        ran = subprocess.run(
            [sys.executable, "-m", "airflow", *words],
            env=self._variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def start(self, part: str) -> None:
        """Start ``api-server``, ``scheduler``, ``dag-processor`` or ``triggerer``."""
        with (self.home / f"{part}.log").open("ab") as log:
            self._processes[part] = subprocess.Popen(
                [sys.executable, "-m", "airflow", part],
                env=self._variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, part: str) -> None:
        """Kill a part and its child processes, as a lost machine does."""
        process = self._processes.pop(part)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        """End all parts."""
        self._http.close()
        for part in list(self._processes):
            self.kill(part)

    def is_up(self) -> bool:
        """Whether the API server answers."""
        with contextlib.suppress(httpx.HTTPError):
            return self._http.get("/api/v2/version").is_success
        return False

    def log_in(self) -> None:
        """Get a token for the other calls."""
        answer = self._http.get("/auth/token").raise_for_status()
        self._http.headers["authorization"] = f"Bearer {answer.json()['access_token']}"

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer of the REST API."""
        answer = self._http.request(method, f"/api/v2/{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def has_dag(self, dag: str) -> bool:
        return self._http.get(f"/api/v2/dags/{dag}").is_success

    def trigger(self, dag: str, **conf: str) -> str:
        """Start a run of a DAG; returns its id."""
        until(lambda: self.has_dag(dag))
        run = f"{dag}-{secrets.token_hex(3)}"
        body = {"dag_run_id": run, "logical_date": None, "conf": dict(conf)}
        self.call("POST", f"dags/{dag}/dagRuns", body)
        return run

    def finished(self, dag: str, run: str) -> str:
        """The state of a run after its end."""
        path = f"dags/{dag}/dagRuns/{run}"
        until(lambda: self.call("GET", path)["state"] not in UNFINISHED)
        return str(self.call("GET", path)["state"])

    def task(self, dag: str, run: str, task: str) -> Any:
        """A task instance."""
        return self.call("GET", f"dags/{dag}/dagRuns/{run}/taskInstances/{task}")

    def in_state(self, dag: str, run: str, task: str, *states: str) -> None:
        """Wait for a state of a task."""
        until(lambda: self.task(dag, run, task)["state"] in states)

    def is_watched(self, dag: str, run: str, task: str) -> None:
        """Wait until a triggerer has taken up the trigger of a deferred task, which is later than
        the task's state says."""
        until(lambda: " starting" in self.log(dag, run, task))

    def set_state(self, dag: str, run: str, task: str, state: str) -> None:
        """Mark a task, as a user does."""
        path = f"dags/{dag}/dagRuns/{run}/taskInstances/{task}"
        self.call("PATCH", path, {"new_state": state})

    def clear(self, dag: str, run: str, task: str) -> None:
        """Clear a task, as a user does: it runs again."""
        body = {
            "dry_run": False,
            "dag_run_id": run,
            "task_ids": [task],
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.call("POST", f"dags/{dag}/clearTaskInstances", body)

    def events(self, dag: str, run: str, event: str) -> dict[str, str]:
        """Task -> text of an event in Airflow's audit log."""
        found = self.call("GET", f"eventLogs?dag_id={dag}&run_id={run}&event={event}")
        return {each["task_id"]: str(each["extra"]) for each in found["event_logs"]}

    def output(self, part: str) -> str:
        """The output of a part."""
        return (self.home / f"{part}.log").read_text(errors="replace")

    def xcom(self, dag: str, run: str, task: str, key: str = "return_value") -> Any:
        """A value that the task has pushed."""
        path = f"dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/{key}?deserialize=true"
        return self.call("GET", path)["value"]

    def log(self, dag: str, run: str, task: str, attempt: int = 1) -> str:
        """The log of an attempt as the user interface shows it."""
        path = f"dags/{dag}/dagRuns/{run}/taskInstances/{task}/logs/{attempt}"
        return str(self.call("GET", path)["content"])
