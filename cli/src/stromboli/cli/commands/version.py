"""``strom version``: the version of the command line, and the readiness of the server."""

import platform
from importlib import metadata

from stromboli.cli import options
from stromboli.cli.errors import UnreachableError
from stromboli.cli.render import output


def version(server: options.Server = None) -> None:
    """Show the version, and whether the server is ready."""
    number = metadata.version("stromboli-cli")
    output.show_lines([f"strom {number} (Python {platform.python_version()})"])
    with options.client(server) as client:
        where = f"server {client.address.url} ({client.address.origin})"
        try:
            is_ready, problems_by_service = client.readiness()
        except UnreachableError as error:
            output.show_lines([f"{where}: not reachable: {error.why}"])
            return
    problems = [
        f"{service}: {fact}: {problem}"
        for service, facts in problems_by_service.items()
        for fact, problem in facts.items()
    ]
    output.show_lines([f"{where}: {'ready' if is_ready else 'not ready'}"])
    output.show_lines(f"  {problem}" for problem in problems)
