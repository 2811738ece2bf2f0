"""The webhook configurations for Docker Compose, and the Secret for admission's certificate."""

import yaml

from stromboli.admission.webhooks import webhooks

URL = "https://admission:8443"
_HEAD = """\
# Written by `python -m tools.compose`: edit the rules in stromboli.admission.webhooks.webhooks
# instead.
#
# Admission creates its certificate, stores it in the Secret, and writes the CA into both
# configurations.
"""


def text() -> str:
    """The manifest as YAML."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "stromboli-admission", "namespace": "default"},
    }
    configurations = webhooks.configurations(URL, b"")
    for configuration in configurations:
        for webhook in configuration["webhooks"]:
            del webhook["clientConfig"]["caBundle"]  # written by admission
    return _HEAD + yaml.safe_dump_all([secret, *configurations], sort_keys=False, width=110)
