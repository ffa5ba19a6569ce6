"""The tracer provider of a process: the one that is configured for it, or one of a factory that has travelled there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final, TypeAlias

from statestore.middleware.extras import extra

with extra("tracing"):
    from opentelemetry.semconv.schemas import Schemas
    from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, Tracer, TracerProvider, get_tracer_provider

ProviderFactory: TypeAlias = "Callable[[], TracerProvider]"

FLUSH_MS: Final = 1000
"""How long a flush may take, in milliseconds, before the next ones are left out for a while."""
HELD_OFF_MS: Final = 60_000
"""How long flushes are left out after one that took too long, in milliseconds."""

_LOG = logging.getLogger(__name__)
_SCHEMA_URL: Final = list(Schemas)[-1].value


class ProcessTracer:
    """A tracer, and how what it has recorded is handed over. One a process: it is kept when batches end."""

    def __init__(self, provider: TracerProvider) -> None:
        self.provider: Final = provider
        self._held_off_until_s = 0.0
        self.tracer: Final[Tracer] = provider.get_tracer("statestore", schema_url=_SCHEMA_URL)

    def flush(self) -> None:
        """Hand over what was recorded, for the process may end; not for a while after a flush that took too long.

        What is left out is not lost: the provider hands it over when it would have done so, if the process goes on.
        """
        flush = getattr(self.provider, "force_flush", None)
        start_s = monotonic()
        if flush is None or start_s < self._held_off_until_s:
            return
        is_done = flush(FLUSH_MS)
        took_ms = (monotonic() - start_s) * 1000
        if not is_done or took_ms > FLUSH_MS:
            self._held_off_until_s = monotonic() + HELD_OFF_MS / 1000
            _LOG.warning(
                "spans took %d ms to hand over: is the collector there? Not waiting for it for %d s",
                took_ms,
                HELD_OFF_MS,
            )


_BY_IDENTITY: Final[dict[str, ProcessTracer]] = {}
_CONFIGURED: Final = ""


def process_tracer(identity: str, factory: ProviderFactory | None) -> ProcessTracer | None:
    """Return the tracer of this process; None if nothing is recorded here, for nobody has configured OpenTelemetry.

    A factory is called once a process and `identity`. Raises TypeError if it makes something else.
    """
    if factory is None:
        provider = get_tracer_provider()
        if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
            return None
        return _kept(_CONFIGURED, provider)
    found = _BY_IDENTITY.get(identity)
    return _kept(identity, factory()) if found is None else found


def _kept(identity: str, provider: TracerProvider) -> ProcessTracer:
    if not isinstance(provider, TracerProvider):
        raise TypeError(f"a factory of tracer providers made {provider!r}")
    found = _BY_IDENTITY.get(identity)
    if found is None or found.provider is not provider:
        found = _BY_IDENTITY[identity] = ProcessTracer(provider)
    return found
