"""Tracing by OpenTelemetry, in W3C's headers: a trace that enters state continues when it leaves it.

interceptor    Tracing: the spans of a record on its way through a query
batch_traces   the same, for one shard and micro-batch; what spans are called and say; the tracer of a process
trace_headers  the headers' bounds, links to other traces, and between headers and OpenTelemetry's contexts

Needs the extra `tracing`; users import from here. Start at `interceptor`.
"""

from statestore.middleware.application import TRACEPARENT
from statestore.middleware.lineage.tracing.interceptor import BatchTracing, Tracing
from statestore.middleware.lineage.tracing.trace_headers import link_traces

__all__ = ["TRACEPARENT", "BatchTracing", "Tracing", "link_traces"]
