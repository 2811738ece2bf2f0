"""Files that users name: read, or told why not."""

from pathlib import Path

from stromboli.cli.errors import CommandError


def text(path: str, what: str = "file", instead: str = "") -> str:
    """What stands in a file. Raises CommandError for one that cannot be read, and for one that is
    no text: ``instead`` is the way on then, naming another ``what`` by default."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        why, next_step = error.strerror or str(error), f"name a {what} that can be read"
        raise CommandError(path, why, next_step) from None
    except UnicodeDecodeError as error:
        why = f"not text: byte {error.start} is not UTF-8"
        raise CommandError(path, why, instead or f"name a {what}") from None
