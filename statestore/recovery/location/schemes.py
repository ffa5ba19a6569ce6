"""Which URIs a state location may have: those of filesystems that are tested, and what to use instead of others.

pyarrow opens more than these, and some of them end the whole process: without credentials, Azure's does.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_TESTED: Final = frozenset({"file", "s3", "gs", "hdfs"})
_OTHER_NAMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""What Hadoop, Spark and others call the same."""
_AZURE: Final = "To reach Azure, mount an NFS share of it on every machine and give the path"
_INSTEAD: Final = {
    **dict.fromkeys(("abfs", "abfss", "adl", "az", "wasb", "wasbs"), _AZURE),
    "dbfs": f"Give the object store that is below it: s3://bucket/path, gs://bucket/path. {_AZURE}",
    "viewfs": "Give the hdfs:// URI that it stands for",
    **dict.fromkeys(("http", "https"), "What speaks S3's protocol is s3://bucket/path?endpoint_override=host:port"),
}
_OTHERWISE: Final = "Use one of those, or mount it on every machine and give the path"


def canonical_uri(uri: str) -> str:
    """Return a URI with the scheme that pyarrow knows it by."""
    scheme = urlsplit(uri).scheme
    return _OTHER_NAMES.get(scheme, scheme) + uri[len(scheme) :]


def refusal_of(uri: str) -> str | None:
    """Return why a URI can't be a state location, and what to use instead; None if it can."""
    scheme = urlsplit(uri).scheme
    if scheme in _TESTED:
        return None
    return (
        f"is of kind {scheme}:, which was never tested: what is known to work is file:, s3:, gs: and hdfs:. "
        f"{_INSTEAD.get(scheme, _OTHERWISE)}. A DurableLocation of your own may open others, "
        "untested, in its open_filesystem()"
    )
