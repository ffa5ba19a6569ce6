"""Retries what failed on a remote filesystem and may succeed later.

pyarrow passes on the text of the object stores' clients. The classes of failures are read from it:

    AWS Error SLOW_DOWN during PutObject operation: ...
    AWS Error UNKNOWN (HTTP status 500) during HeadObject operation: ...
    google::cloud::Status(UNAVAILABLE: ...)
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

_LOG = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_HTTP_ERROR = re.compile(r"(?:AWS|Azure) Error (\w+)(?: \(HTTP status (\d+)\))?")
_TRANSIENT_AWS_ERRORS = frozenset(
    {
        "INTERNAL_FAILURE",
        "NETWORK_CONNECTION",
        # The answer to the completion of an upload got lost, and the client asked once more.
        "NO_SUCH_UPLOAD",
        "REQUEST_TIMEOUT",
        "SERVICE_UNAVAILABLE",
        "SLOW_DOWN",
        "THROTTLING",
    }
)
_TOO_MANY_REQUESTS = 429
_GOOGLE_ERROR = re.compile(r"google::cloud::Status\((\w+)")
_TRANSIENT_GOOGLE_ERRORS = frozenset({"ABORTED", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE"})


def service_error(cause: BaseException) -> str | None:
    """Return what an object store's client calls a failure, such as `SLOW_DOWN`; None if it does not come from one."""
    found = _HTTP_ERROR.search(str(cause)) or _GOOGLE_ERROR.search(str(cause))
    return found[1] if found else None


def is_transient(cause: BaseException) -> bool:
    """Return whether a failure may be gone at the next try: throttling, 5xx, lost connections, timeouts."""
    if isinstance(cause, (ConnectionError, TimeoutError)):
        return True
    text = str(cause)
    if found := _HTTP_ERROR.search(text):
        status = int(found[2] or 0)
        return found[1] in _TRANSIENT_AWS_ERRORS or status >= 500 or status == _TOO_MANY_REQUESTS
    found = _GOOGLE_ERROR.search(text)
    return found is not None and found[1] in _TRANSIENT_GOOGLE_ERRORS


@dataclass(frozen=True)
class Retrying:
    """How long, and how often, what failed is done again. Picklable.

    Waits grow from `first_wait_s` by doubling to `longest_wait_s`, and each is drawn evenly from 0 to that (full
    jitter), so that many clients that failed together do not come back together. No attempt begins after `total_s`, and
    none is broken off: the last one may end later. 0 is a single attempt.
    """

    total_s: float = 60.0
    first_wait_s: float = 0.05
    longest_wait_s: float = 10.0

    def __post_init__(self) -> None:
        if not (self.total_s >= 0 and 0 < self.first_wait_s <= self.longest_wait_s):
            raise ValueError(f"waits must grow from above 0, and their total must not be negative: {self}")

    def call(self, what: str, operation: Callable[[], _Result]) -> _Result:
        """Return what `operation` returns, called again while it fails with what `is_transient` and time is left.

        Raises what the last call raised.
        """
        deadline_s = time.monotonic() + self.total_s
        ceiling_s = self.first_wait_s
        attempts = 1
        while True:
            try:
                return operation()
            except (OSError, pa.ArrowException) as cause:
                wait_s = random.uniform(0, ceiling_s)
                if not is_transient(cause) or time.monotonic() + wait_s >= deadline_s:
                    raise
                _LOG.warning("%s failed, attempt %d; again in %.2f s: %s", what, attempts, wait_s, cause)
            time.sleep(wait_s)
            ceiling_s = min(2 * ceiling_s, self.longest_wait_s)
            attempts += 1
