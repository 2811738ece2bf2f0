"""``strom job edit``: change a job in an editor.

Only the changed fields are sent, with the version of the job that was read. After a conflict the
job is read again. Without a concurrent change of the same fields, the changes are sent again;
otherwise the editor opens again with the user's text and the names of these fields. The text is
never lost: if the command fails, it remains in a file.
"""

import contextlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stromboli.cli import options
from stromboli.cli.errors import CommandError, ConflictedError
from stromboli.cli.job_specs import three_way
from stromboli.cli.render import output
from stromboli.shared.api import kinds

if TYPE_CHECKING:
    from stromboli.cli.client import Client

Document = dict[str, Any]
NOTE = "#| "
"""Prefix of the lines that this command writes above the text."""
FIXED = ("apiVersion", "kind", "metadata.name", "metadata.namespace")
MAX_CONFLICTS = 5
"""Maximum retries after conflicts about other fields; then the editor opens again."""


def edit(
    name: options.JobName,
    namespace: options.Namespace = options.DEFAULT_NAMESPACE,
    server: options.Server = None,
) -> None:
    """Change a job in an editor (VISUAL, EDITOR or vi).

    You can change the fields of strom job set, labels and annotations. Errors are shown in the
    editor; save the text unchanged to give up.
    """
    with options.client(server) as client:
        JobEdit(client, namespace, name).run(_command(os.environ))


class JobEdit:
    """One edit of a job: the text, the job as first read, and as last read."""

    def __init__(self, client: "Client", namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._what = f"job {namespace}/{name}"
        self._first, self._version = self._read()
        self._seen = self._first

    def run(self, editor: Sequence[str]) -> None:
        """Edit and send until the server accepts the text. Raises CommandError that names the file
        with the text."""
        number, path = tempfile.mkstemp(prefix=f"strom-{self._name}-", suffix=".yaml", text=True)
        os.close(number)
        file = Path(path)
        try:
            result = self._edited(editor, file)
        except CommandError as error:
            kept = f"{error.next_step}; your text is in {file}"
            raise CommandError(error.what, error.why, kept, error.details) from None
        with contextlib.suppress(OSError):
            file.unlink()
        output.show_lines([f"{output.title(kinds.JOBS, self._name)} {result}"])

    def _edited(self, editor: Sequence[str], file: Path) -> str:
        text, notes = _yaml(self._first), list[str]()
        while True:
            file.write_text("".join(f"{NOTE}{note}\n" for note in notes) + text, encoding="utf-8")
            self._open(editor, file)
            before, text = text, _without_notes(file.read_text(encoding="utf-8"))
            if text == before:
                if not notes:
                    return "unchanged"
                raise CommandError(self._what, notes[0], "edit it again", tuple(notes[1:]))
            notes, wanted = self._parsed(text, file)
            if wanted is None:
                continue
            patch = three_way.partial(self._first, wanted)
            if patch == three_way.UNCHANGED:
                return "unchanged"
            notes = self._send(patch)
            if not notes:
                return "configured"

    def _parsed(self, text: str, file: Path) -> tuple[list[str], Document | None]:
        """Notes about errors in the text, and the edited job; None if there are errors."""
        from stromboli.cli import manifests

        try:
            documents = [manifest.document for manifest in manifests.parse(text, file.name)]
        except CommandError as error:
            return error.lines(), None
        if len(documents) != 1 or not isinstance(documents[0], dict):
            return ["the text must be one job"], None
        if gone := list(three_way.removed(self._first, documents[0])):
            return [f"{path}: cannot be removed; set another value" for path in gone], None
        patch = three_way.partial(self._first, documents[0])
        names = {*patch, *(f"metadata.{name}" for name in patch.get("metadata", ()))}
        if fixed := [path for path in FIXED if path in names]:
            return [f"{path}: cannot be changed" for path in fixed], None
        return [], documents[0]

    def _send(self, patch: Document) -> list[str]:
        """Send the patch. Returns notes about why the server did not accept it; empty if it did."""
        for _ in range(MAX_CONFLICTS):
            metadata = {
                "name": self._name,
                "namespace": self._namespace,
                "resourceVersion": self._version,
                **patch.get("metadata", {}),
            }
            head = {"apiVersion": kinds.JOBS.api_version, "kind": kinds.JOBS.kind}
            try:
                self._client.apply([{**head, **patch, "metadata": metadata}])
            except ConflictedError:
                previous, self._seen = self._seen, self._reread()
                if both := three_way.overlap(patch, three_way.partial(previous, self._seen)):
                    return [f"{path}: changed meanwhile; save to overwrite it" for path in both]
            except CommandError as error:
                return [f"{error.what}: {error.why}", *error.details]
            else:
                return []
        return ["the job changes too often; save to try again"]

    def _reread(self) -> Document:
        document, self._version = self._read()
        return document

    def _read(self) -> tuple[Document, str]:
        """The part of the job that can be edited, and its version."""
        stored = msgspec.json.decode(self._client.job(self._namespace, self._name))
        metadata = stored["metadata"]
        editable_metadata = {key: metadata[key] for key in ("name", "namespace")}
        for part in ("labels", "annotations"):
            editable_metadata[part] = metadata.get(part) or {}
        head = {"apiVersion": kinds.JOBS.api_version, "kind": kinds.JOBS.kind}
        return {**head, "metadata": editable_metadata, "spec": stored["spec"]}, metadata[
            "resourceVersion"
        ]

    def _open(self, editor: Sequence[str], file: Path) -> None:
        try:
            code = subprocess.run([*editor, str(file)], check=False).returncode
        except OSError as error:
            why = f"the editor {editor[0]} does not start: {error.strerror}"
            raise CommandError(self._what, why, "set EDITOR to another program") from None
        if code:
            why = f"the editor ended with exit code {code}; nothing was changed"
            raise CommandError(self._what, why, "try again")


def _command(environment: Mapping[str, str]) -> list[str]:
    """The user's editor and its arguments."""
    named = environment.get("VISUAL") or environment.get("EDITOR") or "vi"
    return shlex.split(named) or ["vi"]


def _yaml(document: Document) -> str:
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text


def _without_notes(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(NOTE))
