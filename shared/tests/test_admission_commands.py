"""Commands that no service would execute are rejected at admission."""

import msgspec
import pytest

from stromboli.shared.api import kinds
from stromboli.shared.jobspec.validation import user_commands
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.builders import make_queue

QUEUES = {
    it.metadata.name: it
    for it in (
        make_queue("root", state="Closed"),
        make_queue("team", state="Closed", parent="root"),
        make_queue("ends", state="Closing", parent="root"),
        make_queue("open", parent="root"),
        make_queue("in-team", state="Closed", parent="team"),
        make_queue("in-ends", state="Closed", parent="ends"),
        make_queue("in-open", state="Closed", parent="open"),
    )
}


@pytest.mark.parametrize(
    ("action", "name", "refused"),
    [
        ("OpenQueue", "team", ""),
        ("OpenQueue", "in-open", ""),
        ("OpenQueue", "unknown", ""),
        ("OpenQueue", "in-team", ""),
        ("OpenQueue", "in-ends", ""),
        ("OpenQueue", "root", ""),
        ("CloseQueue", "root", "the root queue cannot be closed"),
        ("CloseQueue", "in-team", ""),
        ("AbortJob", "team", "'AbortJob' is not an action on a Queue"),
        ("OpenQueue", "", "no target"),
    ],
)
def test_a_queue_is_opened_wherever_it_is_and_all_but_the_root_are_closed(
    action: str, name: str, refused: str
) -> None:
    document = manifests.command(action, kinds.QUEUES, name)
    command = kinds.COMMANDS.decode(msgspec.json.encode(document))
    said = [it.reason for it in user_commands.violations(command, QUEUES)]
    assert said == ([refused] if refused else [])


def test_a_command_that_waits_for_the_parent_queue_has_a_warning() -> None:
    commands = [
        kinds.COMMANDS.decode(
            msgspec.json.encode(manifests.command("OpenQueue", kinds.QUEUES, name))
        )
        for name in ("in-team", "in-open")
    ]
    said = [list(user_commands.warnings(it, QUEUES)) for it in commands]
    assert said == [
        ["queue in-team stays closed until its parent queue team, now Closed, is open"],
        [],
    ]


@pytest.mark.parametrize("action", ["OpenQueue", "CloseQueue"])
def test_a_job_is_no_queue(action: str) -> None:
    document = manifests.command(action)
    command = kinds.COMMANDS.decode(msgspec.json.encode(document))
    (violation,) = user_commands.violations(command, QUEUES)
    assert violation.path == "action"
