"""Names that are read from files which anybody may have changed, and become part of a path. Checked here, nowhere else.

The names of stores have a rule of their own, Kafka's: `bytestore.store_spec`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from statestore.errors.state import UnsafeNameError

_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_LIMIT_CHARACTERS: Final = 1024
"""Of a name in a durable location: what object stores take."""


def path_part(name: Any) -> str:
    """Return `name` if it is one part of a path, as statestore names them: no separator, no leading dot, not empty.

    Up to 128 ASCII letters, digits, `.`, `_` and `-`, the first of them a letter or digit.
    Raises UnsafeNameError, which is a ValueError too: who reads a file says which.
    """
    if not isinstance(name, str) or not _PART.fullmatch(name):
        raise UnsafeNameError(repr(name)[:200])
    return name


def is_relative_name(name: str) -> bool:
    """Return whether `name` is that of a file or directory below another one, with `/` between its parts."""
    return (
        len(name) <= _LIMIT_CHARACTERS
        and name.isprintable()
        and "\\" not in name
        and {"", ".", ".."}.isdisjoint(name.split("/"))
    )
