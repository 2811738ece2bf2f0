"""The texts and JSON documents of notifications, and the signature of webhooks. Pure."""

import hashlib
import hmac
from email.message import EmailMessage
from typing import Any

import msgspec

from stromboli.history.core.rows import instant
from stromboli.history.notifications.notices import Notice
from stromboli.shared.jobspec import notifications as requests

SIGNATURE = "Stromboli-Signature"
_WORDS = {
    requests.STARTED: "is running",
    requests.COMPLETED: "is completed",
    requests.FAILED: "failed",
    requests.STOPPED: "was terminated or suspended",
    requests.PREEMPTED: "was preempted",
    requests.LONG_WAIT: "is still pending",
}


def subject(notice: Notice, cluster: str) -> str:
    """The subject of the notification: one line."""
    where = f" ({cluster})" if cluster else ""
    return " ".join(f"Job {notice.job} {_WORDS[notice.event]}{where}".split())


def lines(notice: Notice, cluster: str) -> list[str]:
    """The subject, the time, the detail, and the command that shows more."""
    namespace, _, name = notice.job.partition("/")
    command = "explain" if notice.event == requests.LONG_WAIT else "job describe"
    text_lines = [subject(notice, cluster), f"at {instant(notice.at):%Y-%m-%d %H:%M:%S} UTC"]
    text_lines += [notice.detail] if notice.detail else []
    return [*text_lines, f"see: strom {command} {name} -n {namespace}"]


def document(notice: Notice, cluster: str) -> bytes:
    """The JSON body of a request to a webhook."""
    body: dict[str, Any] = {
        "id": notice.id,
        "event": notice.event,
        "job": notice.job,
        "uid": notice.job_uid,
        "queue": notice.queue,
        "retryCount": notice.retry_count,
        "at": instant(notice.at),
        "detail": notice.detail,
        "cluster": cluster,
    }
    return msgspec.json.encode(body)


def slack(notice: Notice, cluster: str) -> bytes:
    """The body of an incoming webhook of Slack. Its three special characters are escaped, so that
    a job's message cannot contain links or mentions."""
    text = "\n".join(lines(notice, cluster))
    for character, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, escaped)
    return msgspec.json.encode({"text": text})


def mail(notice: Notice, cluster: str, sender: str, to: tuple[str, ...]) -> EmailMessage:
    """A mail. The Message-ID is the same in each attempt, so that servers can drop repetitions."""
    message = EmailMessage()
    message["Subject"] = subject(notice, cluster)
    message["From"] = sender
    message["To"] = ", ".join(to)
    digest = hashlib.sha256(notice.id.encode()).hexdigest()[:32]
    message["Message-ID"] = f"<{digest}@stromboli>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join(lines(notice, cluster)) + "\n")
    return message


def signature(secret: str, body: bytes, now_s: int) -> str:
    """The value of the header: the time and an HMAC-SHA256 of ``time.body``. The time is signed, so
    that a receiver can reject an old request that is sent again."""
    signed = f"{now_s}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return f"t={now_s},v1={digest}"
