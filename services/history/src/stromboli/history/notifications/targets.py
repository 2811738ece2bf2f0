"""The targets of an installation: a TOML file that its administrator writes.

A job names targets of this file; it cannot name a URL. So the hosts that this service calls are
those in this file, and the SMTP server.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from stromboli.shared import decoding, errors
from stromboli.shared.jobspec import notifications as requests

WHAT = "STROM_HISTORY_NOTIFICATIONS_FILE"
EVERY = "*"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver. ``url`` and ``secret`` may be in separate files. ``events``: the
    events that it receives about every job (of ``queues``, if not empty). ``namespaces``: jobs in
    these namespaces may request the target; ``*`` for all."""

    name: str
    type: Literal["webhook", "slack", "mail"]
    url: str = ""
    url_file: str = ""
    secret: str = ""
    secret_file: str = ""
    to: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    def receives(self, event: str, queue: str) -> bool:
        """Whether the target receives an event that the job did not request. An event without a
        queue, such as a preemption, reaches only targets without ``queues``."""
        return event in self.events and (not self.queues or queue in self.queues)


class Mail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The SMTP server. ``domains``: jobs may request addresses in them; none by default."""

    host: str
    port: int = 587
    sender: str
    user: str = ""
    password: str = ""
    password_file: str = ""
    encryption: Literal["starttls", "tls", "none"] = "starttls"
    domains: tuple[str, ...] = ()


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file. ``per_minute``: maximum notifications to one target; further ones
    wait. ``long_wait_s``: how long a job is pending before ``LongWait``. ``cluster``: the name of
    the cluster in texts."""

    targets: tuple[Target, ...] = ()
    mail: Mail | None = None
    per_minute: Annotated[int, msgspec.Meta(ge=1)] = 30
    long_wait_s: Seconds = 3600.0
    cluster: str = ""

    def target(self, name: str) -> Target | None:
        """The target with this name or mail address; None if there is none."""
        if name.startswith(requests.MAIL):
            address = name.removeprefix(requests.MAIL)
            return Target(name=name, type="mail", to=(address,)) if self.mail else None
        return next((each for each in self.targets if each.name == name), None)

    def may_request(self, name: str, namespace: str) -> bool:
        """Whether a job of a namespace may request a target."""
        if name.startswith(requests.MAIL):
            domain = name.rpartition("@")[2].lower()
            return self.mail is not None and domain in self.mail.domains
        target = self.target(name)
        return target is not None and bool({EVERY, namespace} & set(target.namespaces))


def load(path: str) -> Configuration:
    """Read the file, and the files that it names. Raises ConfigurationError."""
    try:
        raw = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        configuration = decoding.convert(raw, Configuration)
        targets = tuple(map(_complete, configuration.targets))
        mail = configuration.mail
        if mail is not None:
            password = _secret(mail.password, mail.password_file)
            mail = msgspec.structs.replace(mail, password=password)
        configuration = msgspec.structs.replace(configuration, targets=targets, mail=mail)
        _check(configuration)
    except (OSError, ValueError) as error:
        raise errors.ConfigurationError(f"{WHAT}={path}", str(error)) from None
    return configuration


def _complete(target: Target) -> Target:
    return msgspec.structs.replace(
        target,
        url=_secret(target.url, target.url_file),
        secret=_secret(target.secret, target.secret_file),
    )


def _secret(value: str, file: str) -> str:
    """A value, or the content of the file that contains it. Raises OSError."""
    return Path(file).read_text(encoding="utf-8").strip() if file else value


def _check(configuration: Configuration) -> None:
    """Raises ValueError for a target that cannot be used."""
    names = [each.name for each in configuration.targets]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"several targets have the name {twice[0]!r}: a name must be unique")
    for each in configuration.targets:
        if unknown := set(each.events) - set(requests.EVENTS):
            known = f"known are {', '.join(requests.EVENTS)}"
            raise ValueError(f"target {each.name}: unknown events {sorted(unknown)}; {known}")
        if each.type == "mail" and not (each.to and configuration.mail):
            raise ValueError(f"target {each.name}: a mail needs `to` and the section [mail]")
        if each.type == "webhook" and not each.secret:
            raise ValueError(f"target {each.name}: a webhook needs a secret to sign with")
        if each.type != "mail":
            _check_url(each)


def _check_url(target: Target) -> None:
    parts = urlsplit(target.url)
    is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if not parts.hostname or (parts.scheme != "https" and not is_local):
        raise ValueError(f"target {target.name}: its URL must begin with https://")
