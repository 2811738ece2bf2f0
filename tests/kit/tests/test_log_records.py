"""Where services that run in the process of the tests log."""

import threading

import typer
from typer.testing import CliRunner

from stromboli.shared.runtime import telemetry


def test_a_service_that_logs_while_a_command_runs_adds_nothing_to_the_output_of_the_command() -> (
    None
):
    def command() -> None:
        service = threading.Thread(target=telemetry.log.info, args=("session",))
        service.start()
        service.join()
        typer.echo("output")

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app)
    assert (result.stdout, result.stderr) == ("output\n", "")
