"""Sets up pyarrow's clients of object stores so that they leave waiting and retrying to `Retrying`.

As they come from a URI, the S3 client asks up to 30 times in 6 s at an even pace, and Google's for up to 15 minutes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pyarrow import fs

from statestore.recovery.location.durable_files import GcsFiles, ObjectFiles
from statestore.recovery.location.retrying import Retrying

_ONLY_IN_URIS = frozenset({"smart_defaults", "tls_ca_dir_path", "tls_verify_certificates"})
"""Options of S3 that a URI can give, and pyarrow has no argument for."""
_PART_ATTEMPTS = 5
_CONNECT_TIMEOUT_S = 5.0


def s3_files(filesystem: Any, retrying: Retrying, uri: str) -> ObjectFiles:
    """Return the objects of the S3 filesystem that `uri` names, with its options but those for retries and requests."""
    parameters = {name for name, _ in parse_qsl(urlsplit(uri).query)}
    if parameters & _ONLY_IN_URIS:
        return ObjectFiles(filesystem, retrying, for_parts=filesystem)
    return ObjectFiles(_s3(filesystem, attempts=1), retrying, for_parts=_s3(filesystem, attempts=_PART_ATTEMPTS))


def gcs_files(filesystem: Any, retrying: Retrying) -> GcsFiles:
    """Return the objects of a GCS filesystem, whose client retries by itself, for as long as `retrying` says."""
    options = _options(filesystem)
    if options["retry_time_limit"] is None:
        options["retry_time_limit"] = timedelta(seconds=max(1, round(retrying.total_s)))
    filesystem = fs.GcsFileSystem(**options)
    return GcsFiles(filesystem, retrying, for_parts=filesystem)


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
