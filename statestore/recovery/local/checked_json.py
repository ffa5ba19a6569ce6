"""Small JSON files on the local disk, with a checksum: what was damaged there must not get into the durable location.

{"digest": BLAKE2b-128 of the JSON in `content`, as hex, "content": str}
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from statestore.errors import FormatError
from statestore.format.json_fields import MALFORMED
from statestore.recovery.location.digests import digest


def checked_json(content: Any) -> str:
    """Return `content` as one line of JSON with its checksum."""
    text = json.dumps(content)
    return json.dumps({"digest": digest(text.encode()), "content": text})


def parse_checked_json(text: str | bytes) -> Any:
    """Return the content of what `checked_json` gave. Raises FormatError if it is damaged."""
    try:
        fields = json.loads(text)
        content = fields["content"]
        if digest(content.encode()) != fields["digest"]:
            raise FormatError("local file", "its checksum is not that of its content")
        return json.loads(content)
    except MALFORMED as cause:
        raise FormatError("local file", f"{text[:100]!r} is not one of ours") from cause


def write_checked_json(path: Path, content: Any) -> None:
    """Write a file such that it is there whole or not at all. Not durably: what is in it can be made again."""
    partial = path.with_suffix(".partial")
    partial.write_text(checked_json(content), encoding="utf-8")
    os.replace(partial, path)


def read_checked_json(path: Path) -> Any:
    """Return what `write_checked_json` wrote. Raises FileNotFoundError, and FormatError if it is damaged."""
    return parse_checked_json(path.read_bytes())
