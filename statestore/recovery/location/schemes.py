"""What differs by the kind of filesystem: which URIs are taken, options of clients, and what to do about a failure.

Only tested filesystems are taken. pyarrow opens more.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from pyarrow import fs

from statestore.recovery.location.durable_files import DurableFiles, GcsFiles, ObjectFiles
from statestore.recovery.location.retrying import Retrying, is_transient, service_error

_TESTED: Final = frozenset({"file", "s3", "gs", "abfss", "hdfs"})
_OTHER_NAMES: Final = {
    **dict.fromkeys(("s3a", "s3n"), "s3"),
    "gcs": "gs",
    **dict.fromkeys(("abfs", "az", "wasb", "wasbs"), "abfss"),
}
"""What Hadoop, Spark and others call them."""
_INSTEAD: Final = {
    "dbfs": "Give the object store that is below it: s3://, gs:// or abfss://",
    "viewfs": "Give the hdfs:// URI that it stands for",
    **dict.fromkeys(("http", "https"), "What speaks S3's protocol is s3://bucket/path?endpoint_override=host:port"),
}
_MOUNTS_OF_DATABRICKS: Final = ("/dbfs/", "/Volumes/")
_OTHERWISE: Final = "Use one of those, or mount it on every machine and give the path"


def canonical_uri(uri: str) -> str:
    """Return a URI with the one name of its scheme, and of an account's host."""
    parts = urlsplit(uri)
    scheme = _OTHER_NAMES.get(parts.scheme, parts.scheme)
    if scheme == "abfss":
        return urlunsplit(parts._replace(scheme=scheme, netloc=parts.netloc.replace(".blob.", ".dfs.", 1)))
    return scheme + uri[len(parts.scheme) :]


def refusal_of(uri: str) -> str | None:
    """Return why a URI can't be a state location, and what to use instead; None if it can."""
    scheme, authority, path, _, _ = urlsplit(uri)
    if scheme == "s3" and ":" in authority and "@" not in authority:
        return "has no bucket behind its secret: write `/` of the secret as %2F, `#` as %23, `?` as %3F and `%` as %25"
    if "#" in uri or (scheme == "file" and "?" in uri):
        # pyarrow would leave out the rest.
        return (
            "would end at its `#` or `?`, as others do: write %23 or %3F if that is part of the path, or leave it out"
        )
    if scheme == "file" and sys.platform == "linux" and path.startswith(_MOUNTS_OF_DATABRICKS):
        return (
            "is on a mount of Databricks, of which it is not known whether a listing shows what other machines wrote. "
            + _INSTEAD["dbfs"]
        )
    if scheme in _TESTED:
        return None
    return (
        f"is of kind {scheme}:, which was never tested: what is known to work is file:, s3:, gs:, abfss: and hdfs:. "
        f"{_INSTEAD.get(scheme, _OTHERWISE)}. A subclass of DurableLocation may open others, untested, in its "
        "open_filesystem()"
    )


_ONLY_IN_URIS = frozenset({"smart_defaults", "tls_ca_dir_path", "tls_verify_certificates"})
"""Options of S3 that a URI can give but pyarrow has no argument for."""
_PART_ATTEMPTS = 5
_CONNECT_TIMEOUT_S = 5.0
_LONGEST_S: Final = 24 * 3600
"""How long Google's client is to retry at most: of 25 days it makes none. `Retrying` then asks again."""


def s3_files(filesystem: Any, retrying: Retrying, uri: str) -> ObjectFiles:
    """Return the objects of the S3 filesystem that `uri` names, with its options but those for retries and requests."""
    # A client made from a URI asks up to 30 times in 6 s at an even pace: here `retrying` decides how often.
    parameters = {name for name, _ in parse_qsl(urlsplit(uri).query)}
    if parameters & _ONLY_IN_URIS:
        return ObjectFiles(filesystem, retrying, for_parts=filesystem)
    return ObjectFiles(_s3(filesystem, attempts=1), retrying, for_parts=_s3(filesystem, attempts=_PART_ATTEMPTS))


def gcs_files(filesystem: Any, retrying: Retrying) -> GcsFiles:
    """Return the objects of a GCS filesystem, whose client retries by itself for as long as `retrying` says."""
    options = _options(filesystem)
    if options["retry_time_limit"] is None:
        options["retry_time_limit"] = timedelta(seconds=max(1, round(min(retrying.total_s, _LONGEST_S))))
    filesystem = fs.GcsFileSystem(**options)
    return GcsFiles(filesystem, retrying, for_parts=filesystem)


def open_azure(uri: str) -> tuple[Any, str]:
    """Return Azure's client of the container that `uri` names, and the path in it. Raises ValueError."""
    try:
        from statestore.recovery.location.azure import open_container
    except ModuleNotFoundError as missing:
        raise ValueError(f"{missing}: pip install 'statestore[azure]'") from missing
    return open_container(uri)


def open_hdfs(uri: str) -> tuple[Any, str]:
    """Return the filesystem that `uri` names, and the path in it: by hdfs-native, or else by libhdfs of Hadoop.

    Raises ValueError, and what pyarrow does.
    """
    try:
        from statestore.recovery.location.hdfs import open_hdfs
    except ModuleNotFoundError:
        return _open_by_libhdfs(uri)
    return open_hdfs(uri)


def _open_by_libhdfs(uri: str) -> tuple[Any, str]:
    try:
        filesystem, root = fs.FileSystem.from_uri(uri)
    except OSError as cause:
        if "libhdfs" not in str(cause) and "libjvm" not in str(cause):
            raise
        raise ValueError(f"{cause}: pip install 'statestore[hdfs]', which needs no Hadoop") from cause
    return filesystem, root


def azure_files(container: Any, retrying: Retrying) -> DurableFiles:
    """Return the blobs of the container whose client this is."""
    from statestore.recovery.location.azure import AzureFiles

    return AzureFiles(container, retrying)


def _s3(filesystem: Any, attempts: int) -> Any:
    options = _options(filesystem)
    # Otherwise every object, however small, is a multipart upload: three requests instead of one.
    options["allow_delayed_open"] = True
    if options["connect_timeout"] <= 0:
        options["connect_timeout"] = _CONNECT_TIMEOUT_S
    return fs.S3FileSystem(**options, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=attempts))


def _options(filesystem: Any) -> dict[str, Any]:
    """Return the arguments that make such a filesystem. pyarrow hands them out for pickling only."""
    _, (options,) = filesystem.__reduce__()
    return dict(options)


_BY_SERVICE_ERROR = {
    # NOT_FOUND is GCS's answer to a write. Reading a missing file is no error.
    **dict.fromkeys(
        ("NO_SUCH_BUCKET", "NOT_FOUND", "ContainerNotFound"),
        "The bucket, or container, does not exist: create it, or mend its name, or the URI's endpoint",
    ),
    **dict.fromkeys(
        [
            "ACCESS_DENIED",
            "ACCOUNT_PROBLEM",
            "AccountIsDisabled",
            "AuthorizationFailure",
            "AuthorizationPermissionMismatch",
            "AuthorizationProtocolMismatch",
            "AuthorizationSourceIPMismatch",
            "InsufficientAccountPermissions",
            "PERMISSION_DENIED",
            "PublicAccessNotPermitted",
        ],
        "The credentials in use are not allowed this: see the permissions in docs/durable-locations.md",
    ),
    **dict.fromkeys(
        [
            "AuthenticationFailed",
            "EXPIRED_TOKEN",
            "INCOMPLETE_SIGNATURE",
            "INVALID_ACCESS_KEY_ID",
            "INVALID_CLIENT_TOKEN_ID",
            "INVALID_SIGNATURE",
            "InvalidAuthenticationInfo",
            "MISSING_AUTHENTICATION_TOKEN",
            "NoAuthenticationInformation",
            "NoCredentials",
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
    **dict.fromkeys(
        [errno.ENOSYS, errno.EOPNOTSUPP],
        "What is mounted there can't rename, or something else that a disk can: if it stands for an object store, give "
        "the URI of the object store",
    ),
    errno.EROFS: "The filesystem is mounted read-only: mount it writable, or give another state_location",
    **dict.fromkeys(
        [errno.EACCES, errno.EPERM],
        f"It is read-only or closed to user {os.getuid()}: give the user that the driver and every executor run as the "
        "permission to read and write there",
    ),
}
_OF_ANOTHER_REGION = ("HTTP status 301", "PermanentRedirect", "AuthorizationHeaderMalformed")
_DEFAULT = "Give a state_location that the driver and every executor can read and write"


def remedy(cause: BaseException, retrying: Retrying) -> str:
    """Return what to do about a failure of a durable location, as a sentence without its full stop."""
    if is_transient(cause):
        return (
            f"It did not get better within {retrying.total_s:g} s: see whether the service can be reached from this "
            "machine, then start the query again; it goes on where it stopped"
        )
    if any(said in str(cause) for said in _OF_ANOTHER_REGION):
        return "The bucket is in another region: name that in the URI, as ?region="
    found = service_error(cause)
    if found in _BY_SERVICE_ERROR:
        return _BY_SERVICE_ERROR[found]
    number = getattr(cause, "errno", None)
    return _BY_ERRNO.get(number, _DEFAULT) if number else _DEFAULT


_SPARK_SEES_OTHERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_REMOTE")
"""Where these are set, a path without a scheme may be on another filesystem than this machine's, or on a server."""


_HADOOP_PATH: Final = re.compile(r"(?:([A-Za-z][\w.+-]*):)?(?://([^/]*))?(.*)", re.DOTALL)


def split_hadoop_path(text: str) -> tuple[str, str, str]:
    """Return scheme, authority and path of what Hadoop takes for a path: nothing in it is escaped."""
    found = _HADOOP_PATH.fullmatch(text)
    assert found is not None  # anything is one
    scheme, authority, path = found.groups("")
    return scheme, authority, path


def problem_of_checkpoint(checkpoint: str | Path, *, default_filesystem: str | None = None) -> str | None:
    """Return what is wrong with a checkpoint's path, None if nothing is seen; the default is Hadoop's filesystem."""
    text = os.fspath(checkpoint)
    scheme, _, below = split_hadoop_path(text)
    is_elsewhere = default_filesystem or any(name in os.environ for name in _SPARK_SEES_OTHERS)
    if scheme != "file" and (scheme or is_elsewhere):
        return None
    path = Path(below)
    if (path / "offsets").is_dir():  # a checkpoint of Spark has it from its first batch on
        return None
    found = "no checkpoint" if path.exists() else "nothing"
    return f"there is {found} at {text}: name the checkpointLocation of the query"
