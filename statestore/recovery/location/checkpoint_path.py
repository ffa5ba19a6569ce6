"""Whether a path can be a query's checkpoint, as far as that is seen without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

OFFSETS: Final = "offsets"
"""A directory that each checkpoint of Spark has, from its first batch on."""


_SPARK_SEES_OTHERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_REMOTE")
"""Where these are set, a path without a scheme may be one of another filesystem than this machine's, or of a server."""


def problem_of_checkpoint(checkpoint: str | Path, *, default_filesystem: str | None = None) -> str | None:
    """Return what is wrong with a path of a checkpoint, as a sentence; None if nothing is, or it can't be seen.

    `default_filesystem` is what a session has set for Hadoop's paths without a scheme.
    """
    text = os.fspath(checkpoint)
    parts = urlsplit(text)
    is_elsewhere = default_filesystem or any(name in os.environ for name in _SPARK_SEES_OTHERS)
    if parts.scheme != "file" and (parts.scheme or is_elsewhere):
        return None
    path = Path(parts.path)
    if (path / OFFSETS).is_dir():
        return None
    found = "no checkpoint" if path.exists() else "nothing"
    return f"there is {found} at {text}: name the checkpointLocation of the query"
