"""What of a remote filesystem's failures is waited out, for how long, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from statestore.recovery.location import retrying
from statestore.recovery.location.retrying import Retrying, is_transient, service_error

TRANSIENT = [
    "AWS Error SLOW_DOWN during PutObject operation: Please reduce your request rate.",
    "AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body.",
    "AWS Error UNKNOWN (HTTP status 429) during HeadObject operation: No response body.",
    "AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 28, Timeout was reached",
    "google::cloud::Status(UNAVAILABLE: Retry policy exhausted)",
]
PERMANENT = [
    "AWS Error ACCESS_DENIED during PutObject operation: Access Denied",
    "AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation: The specified bucket does not exist",
    "AWS Error UNKNOWN (HTTP status 301) during HeadObject operation: No response body.",
    "google::cloud::Status(PERMISSION_DENIED: no)",
    "No space left on device",
]


@pytest.mark.parametrize(("text", "transient"), [*((t, True) for t in TRANSIENT), *((t, False) for t in PERMANENT)])
def test_failures_are_classed_by_what_pyarrow_says(text: str, transient: bool) -> None:
    assert is_transient(OSError(text)) is transient


def test_waiting_grows_up_to_a_limit_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    waits: list[float] = []

    def sleep(wait_s: float) -> None:
        nonlocal now_s
        waits.append(wait_s)
        now_s += wait_s

    monkeypatch.setattr(retrying, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now_s))
    monkeypatch.setattr("random.uniform", lambda _, most: most)

    def fail() -> None:
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        Retrying(total_s=10, first_wait_s=0.5, longest_wait_s=3).call("it", fail)
    assert waits == [0.5, 1, 2, 3, 3]
    waits.clear()
    with pytest.raises(ConnectionResetError):
        Retrying(total_s=0).call("it", fail)
    assert waits == []


def test_only_what_is_transient_is_done_again() -> None:
    def failing_with(errors: list[BaseException]) -> Callable[[], str]:
        def operation() -> str:
            if errors:
                raise errors.pop(0)
            return "done"

        return operation

    retrying = Retrying(first_wait_s=0.001)
    assert retrying.call("it", failing_with([ConnectionResetError("1"), TimeoutError("2")])) == "done"
    with pytest.raises(PermissionError):
        retrying.call("it", failing_with([ConnectionResetError("1"), PermissionError("2")]))
    with pytest.raises(ValueError, match="waits must grow"):
        Retrying(first_wait_s=0)


@pytest.mark.parametrize(
    ("text", "name"),
    [(TRANSIENT[0], "SLOW_DOWN"), (TRANSIENT[-1], "UNAVAILABLE"), (PERMANENT[-1], None)],
)
def test_a_failure_has_the_name_that_its_client_gives_it(text: str, name: str | None) -> None:
    assert service_error(OSError(text)) == name


@pytest.mark.parametrize(
    "waits", [{"total_s": -1}, {"first_wait_s": 2, "longest_wait_s": 1}, {"total_s": float("nan")}]
)
def test_waits_that_can_not_be_are_refused(waits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="waits must grow"):
        Retrying(**waits)
