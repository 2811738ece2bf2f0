"""Sends one notification: HTTP or SMTP, without retries. Blocking: call it in a thread.

Redirects are not followed: they would lead to hosts that the administrator has not named.
"""

import contextlib
import http.client
import smtplib
import ssl
import urllib.error
import urllib.request
from typing import Any

from stromboli.history.notifications import texts
from stromboli.history.notifications.notices import Notice
from stromboli.history.notifications.targets import Configuration, Mail, Target
from stromboli.shared import errors

TIMEOUT_S = 10.0
_RETRIED = (408, 425, 429)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Do not follow redirects: the response counts as an error with its status."""


def send(notice: Notice, target: Target, configuration: Configuration, now_s: int) -> None:
    """Send a notice. Raises TransientError or PermanentError."""
    cluster = configuration.cluster
    if target.type == "mail":
        if configuration.mail is None:
            raise errors.PermanentError(notice.id, "the SMTP server is no longer configured")
        _mail(notice, target, configuration.mail, cluster)
        return
    headers = {"Content-Type": "application/json", "Idempotency-Key": notice.id}
    if target.type == "slack":
        body = texts.slack(notice, cluster)
    else:
        body = texts.document(notice, cluster)
        headers[texts.SIGNATURE] = texts.signature(target.secret, body, now_s)
    _post(notice.id, target.url, body, headers)


def _post(what: str, url: str, body: bytes, headers: dict[str, str]) -> None:
    request = urllib.request.Request(url, body, headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=TIMEOUT_S):
            return
    except urllib.error.HTTPError as error:
        reason = f"status {error.code}"
        if error.code >= 500 or error.code in _RETRIED:
            after = error.headers.get("Retry-After", "")
            wait_s = float(after) if after.isdecimal() else 0.0
            raise errors.TransientError(what, reason, wait_s) from None
        raise errors.PermanentError(what, reason) from None
    except (OSError, http.client.HTTPException) as error:  # URLError and TimeoutError are OSErrors
        raise errors.UnavailableError(what, type(error).__name__) from None


def _mail(notice: Notice, target: Target, mail: Mail, cluster: str) -> None:
    message = texts.mail(notice, cluster, mail.sender, target.to)
    context = ssl.create_default_context()
    try:
        if mail.encryption == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                mail.host, mail.port, timeout=TIMEOUT_S, context=context
            )
        else:
            server = smtplib.SMTP(mail.host, mail.port, timeout=TIMEOUT_S)
        try:
            if mail.encryption == "starttls":
                server.starttls(context=context)
            if mail.user:
                server.login(mail.user, mail.password)
            server.send_message(message)
        finally:  # an error of QUIT does not concern the mail, which is already accepted
            with contextlib.suppress(OSError, smtplib.SMTPException):
                server.quit()
    except smtplib.SMTPRecipientsRefused as error:
        raise errors.PermanentError(notice.id, f"refused: {_codes(error)}") from None
    except smtplib.SMTPResponseException as error:
        kind = errors.PermanentError if error.smtp_code >= 500 else errors.TransientError
        raise kind(notice.id, f"SMTP status {error.smtp_code}") from None
    except (OSError, smtplib.SMTPException) as error:
        raise errors.UnavailableError(notice.id, type(error).__name__) from None


def _codes(error: smtplib.SMTPRecipientsRefused) -> str:
    return ", ".join(sorted({str(code) for code, _ in error.recipients.values()}))
