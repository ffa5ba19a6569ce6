"""What an operator can do about a durable location that failed."""

from __future__ import annotations

import errno
import os

from statestore.recovery.location.retrying import Retrying, is_transient, service_error

_BY_SERVICE_ERROR = {
    # NOT_FOUND is what GCS says to a write. A file that is not there is not read, which is no error.
    **dict.fromkeys(
        ["NO_SUCH_BUCKET", "NOT_FOUND"],
        "The bucket does not exist: create it, or mend its name, or the option endpoint_override",
    ),
    **dict.fromkeys(
        ["ACCESS_DENIED", "ACCOUNT_PROBLEM", "PERMISSION_DENIED"],
        "The credentials in use are not allowed this: see the permissions in docs/durable-locations.md",
    ),
    **dict.fromkeys(
        [
            "EXPIRED_TOKEN",
            "INCOMPLETE_SIGNATURE",
            "INVALID_ACCESS_KEY_ID",
            "INVALID_CLIENT_TOKEN_ID",
            "INVALID_SIGNATURE",
            "MISSING_AUTHENTICATION_TOKEN",
            "SIGNATURE_DOES_NOT_MATCH",
            "UNAUTHENTICATED",
            "UNRECOGNIZED_CLIENT",
        ],
        "The credentials are wrong, missing or expired on this machine: the driver and every executor need them",
    ),
}
_BY_ERRNO = {
    **dict.fromkeys(
        [errno.ENOSPC, errno.EDQUOT],
        "The disk, or the quota on it, is full: make space, then start the query again. Nothing of what was being "
        "written is visible",
    ),
    errno.EROFS: "The filesystem is mounted read-only: mount it writable, or give another state_location",
    **dict.fromkeys(
        [errno.EACCES, errno.EPERM],
        f"It is read-only or closed to user {os.getuid()}: give the user that the driver and every executor run as the "
        "permission to read and write there",
    ),
}
_DEFAULT = "Give a state_location that the driver and every executor can read and write"


def remedy(cause: BaseException, retrying: Retrying) -> str:
    """Return what to do about a failure of a durable location, as a sentence without its full stop."""
    if is_transient(cause):
        return (
            f"It did not get better within {retrying.total_s:g} s: see whether the service can be reached from this "
            "machine, then start the query again; it goes on where it stopped"
        )
    if "HTTP status 301" in str(cause) or "PermanentRedirect" in str(cause):
        return "The bucket is in another region: name that in the URI, as ?region="
    found = service_error(cause)
    if found in _BY_SERVICE_ERROR:
        return _BY_SERVICE_ERROR[found]
    number = getattr(cause, "errno", None)
    return _BY_ERRNO.get(number, _DEFAULT) if number else _DEFAULT
