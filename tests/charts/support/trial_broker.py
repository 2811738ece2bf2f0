"""The chart's broker for trials as a process, with a second, secured listener.

The first listener is the chart's own; the second one is configured as an operator's broker: TLS,
and accounts with SCRAM. So one broker serves both kinds of values.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stromboli.admission.webhooks import key_pairs
from stromboli.testkit.parts import ports
from stromboli.testkit.parts.kafka import Kafka
from stromboli.testkit.parts.tools import Tools
from tests.charts.support.helm import Object, the_only

USER, PASSWORD = "stromboli", "a-password-of-the-test"
MECHANISM = "SCRAM-SHA-512"


class Broker(Kafka):
    """Reads its properties from the ConfigMap among ``objects``."""

    port_count = 3

    def __init__(self, tools: Tools, state: Path, objects: Sequence[Object]) -> None:
        super().__init__(tools, state)
        self._text: str = the_only(objects, "ConfigMap", "-kafka")["data"]["server.properties"]
        self._pair = key_pairs.make([ports.LOOPBACK], datetime.now(UTC), timedelta(days=1))
        self.authority = self._pair.certificate

    @property
    def locked(self) -> str:
        """bootstrap.servers of the secured listener."""
        return f"{ports.LOOPBACK}:{self.ports[2]}"

    def accounts(self) -> list[str]:
        """One account, for the secured listener."""
        return ["--add-scram", f"{MECHANISM}=[name={USER},password={PASSWORD}]"]

    def properties(self) -> dict[str, str]:
        """The chart's properties with addresses of this machine, and those of the
        secured listener.
        """
        lines = (line.partition("=") for line in self._text.splitlines())
        chart = {name: value for name, _, value in lines}
        own = super().properties()
        addresses = {
            name: own[name]
            for name in (
                "controller.quorum.voters",
                "listeners",
                "advertised.listeners",
                "log.dirs",
            )
        }
        pem = self.state / "broker.pem"
        pem.touch(mode=0o600)
        pem.write_bytes(self._pair.key + self._pair.certificate)
        listener = "listener.name.locked"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return {
            **chart,
            **addresses,
            "listeners": f"{own['listeners']},LOCKED://{self.locked}",
            "advertised.listeners": f"{own['advertised.listeners']},LOCKED://{self.locked}",
            "listener.security.protocol.map": (
                f"{chart['listener.security.protocol.map']},LOCKED:SASL_SSL"
            ),
            f"{listener}.sasl.enabled.mechanisms": MECHANISM,
            f"{listener}.{MECHANISM.lower()}.sasl.jaas.config": module,
            f"{listener}.ssl.keystore.type": "PEM",
            f"{listener}.ssl.keystore.location": str(pem),
        }
