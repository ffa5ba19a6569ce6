"""What an operator is told to do about a location that failed."""

from __future__ import annotations

import errno
import os
import re

import pytest

from statestore.recovery.location.retrying import Retrying
from statestore.recovery.location.schemes import remedy

RETRYING = Retrying(total_s=2.5)


def aws(name: str, status: int) -> OSError:
    """An error as pyarrow hands it on: with a number of the operating system that says nothing."""
    return OSError(errno.EIO, f"When reading: AWS Error {name} (HTTP status {status}) during GetObject operation: no")


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        (aws("SLOW_DOWN", 503), "did not get better within 2.5 s"),
        (aws("UNKNOWN", 500), "did not get better"),
        (TimeoutError("slow"), "did not get better"),
        (OSError("google::cloud::Status(UNAVAILABLE: try later)"), "did not get better"),
        (aws("UNKNOWN", 301), r"in another region: name that in the URI, as \?region="),
        (OSError("AWS Error UNKNOWN during HeadBucket: PermanentRedirect"), "in another region"),
        (aws("NO_SUCH_BUCKET", 404), "bucket, or container, does not exist"),
        (OSError("google::cloud::Status(NOT_FOUND: the bucket)"), "bucket, or container, does not exist"),
        (aws("ACCESS_DENIED", 403), "not allowed this: see the permissions in docs/durable-locations.md"),
        (OSError("google::cloud::Status(PERMISSION_DENIED: no)"), "not allowed this"),
        (aws("EXPIRED_TOKEN", 400), "credentials are wrong, missing or expired"),
        (OSError("google::cloud::Status(UNAUTHENTICATED: who)"), "credentials are wrong"),
        (OSError(errno.ENOSPC, "full"), "is full: make space"),
        (OSError(errno.EDQUOT, "quota"), "or the quota on it, is full"),
        (OSError(errno.ENOSYS, "no rename"), "give the URI of the object store"),
        (OSError(errno.EROFS, "read-only"), "mounted read-only"),
        (OSError(errno.EACCES, "no"), f"closed to user {os.getuid()}"),
        (OSError(errno.EPERM, "no"), f"closed to user {os.getuid()}"),
        (OSError(errno.EIO, "broken"), "^Give a state_location that the driver and every executor can read and write$"),
        (aws("INVALID_RANGE", 416), "^Give a state_location"),
        (OSError("said nothing"), "^Give a state_location"),
        (ValueError("not of a system"), "^Give a state_location"),
    ],
    ids=str,
)
def test_each_failure_has_its_remedy(cause: BaseException, advice: str) -> None:
    found = remedy(cause, RETRYING)
    assert re.search(advice, found), found
    assert not found.endswith("."), "it becomes part of a message"
