"""What time it is for an interceptor."""

from __future__ import annotations

import time

from statestore.interception.interceptor import InterceptorContext


def system_time_ms(context: InterceptorContext | None) -> int:
    """Return the wall clock in milliseconds since the epoch, as the context has it; without one, that of the machine.

    A context's stands still for a micro-batch, and is the same when that is retried.
    """
    return time.time_ns() // 1_000_000 if context is None else context.current_system_time_ms
