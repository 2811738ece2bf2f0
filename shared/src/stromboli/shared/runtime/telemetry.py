"""Logs, traces and metrics, set up once per process.

One trace spans submission to bind. It crosses processes as W3C ``traceparent``: in record headers,
and as an annotation of Kubernetes objects. Traces are exported when the standard variable
``OTEL_EXPORTER_OTLP_ENDPOINT`` is set.
"""

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TextIO

import structlog
import structlog.tracebacks
from opentelemetry import metrics, trace
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation import tracecontext

_PROPAGATOR = tracecontext.TraceContextTextMapPropagator()
meter = metrics.get_meter("stromboli")
"""The meter of this process. Its instruments record once ``set_up`` has run, and cost nothing
before."""
log = structlog.get_logger("stromboli")
"""The logger of services. Log facts as fields, not in the message: ``log.info("bound", pod=...,
node=...)``."""
_tracer = trace.get_tracer("stromboli")
EXPORT_WITHIN_S = 1.0
"""Seconds for the export of pending spans at the end of a process. The exporter itself retries for
10 s if the collector is unavailable, and a container engine would kill the process meanwhile.
"""


def set_up(service: str, environment: Mapping[str, str]) -> None:
    """Configure this process: JSON logs on stderr, ``/metrics``, traces if an endpoint is set."""
    configure_logs()
    resource = Resource.create({"service.name": f"stromboli-{service}"})
    metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()], resource=resource))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        # Only here: its import takes 0.05 s, and every command and test imports this module.
        from opentelemetry.exporter.otlp.proto.http import trace_exporter

        provider.add_span_processor(BatchSpanProcessor(trace_exporter.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def shut_down() -> None:
    """Export pending spans within ``EXPORT_WITHIN_S``; those that remain are lost."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        exporting = threading.Thread(target=provider.shutdown, daemon=True)
        exporting.start()
        exporting.join(EXPORT_WITHIN_S)


def configure_logs(level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Write log records as one JSON object per line to ``stream`` (default: stderr)."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Without local variables: they may contain tokens and passwords.
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            ),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stderr),
    )


@contextlib.contextmanager
def span(name: str, parent: str = "", **attributes: str | int | float | bool) -> Iterator[str]:
    """A span named by a domain verb, with ``parent`` (a traceparent, or empty for a new trace).

    Yields the traceparent for child spans; ``parent`` itself when tracing is not set up, so that
    the caller's trace continues.
    """
    context = _PROPAGATOR.extract({"traceparent": parent}) if parent else None
    with _tracer.start_as_current_span(name, context=context, attributes=attributes):
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        yield carrier.get("traceparent", parent)
