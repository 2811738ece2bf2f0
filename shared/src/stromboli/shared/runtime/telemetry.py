"""Logs, traces and metrics, set up once per process.

One trace leads from submission to bind. It crosses processes as W3C ``traceparent``: in records'
headers, and on Kubernetes objects as an annotation. Traces are sent when the standard variable
``OTEL_EXPORTER_OTLP_ENDPOINT`` is set.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping
from typing import TextIO

import structlog
import structlog.tracebacks
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation import tracecontext

_PROPAGATOR = tracecontext.TraceContextTextMapPropagator()
meter = metrics.get_meter("stromboli")
"""Instruments made from it count once ``set_up`` ran, and cost nothing before."""
log = structlog.get_logger("stromboli")
"""Log fields, not prose: ``log.info("bound", pod=..., node=...)``."""
_tracer = trace.get_tracer("stromboli")


def set_up(service: str, environment: Mapping[str, str]) -> None:
    """Configure this process: JSON log lines on stderr, ``/metrics``, traces if asked for."""
    configure_logs()
    resource = Resource.create({"service.name": f"stromboli-{service}"})
    metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()], resource=resource))
    provider = TracerProvider(resource=resource)
    if environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def configure_logs(level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Log records with fields, one JSON object a line, on ``stream`` (stderr if none)."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Without local variables: tokens and passwords are among them.
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
    """A span named by a domain verb below ``parent`` (a traceparent, or empty for a new trace).

    Yields the traceparent to hand on; ``parent`` itself when tracing is not set up, so that a
    caller's trace is never cut.
    """
    context = _PROPAGATOR.extract({"traceparent": parent}) if parent else None
    with _tracer.start_as_current_span(name, context=context, attributes=attributes):
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        yield carrier.get("traceparent", parent)
