"""What a configuration says of one application: properties named after its kind, with dots for underscores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from statestore.connect.config import ConfigDef, Properties
from statestore.errors import ConfigException

T = TypeVar("T")


def made_of(make: Callable[..., T], kind: str, options: ConfigDef, config: Mapping[str, str]) -> T:
    """Call `make` with the options of a kind that a configuration has: `max.bytes` is its argument `max_bytes`.

    An option whose default is None is not passed on, unless it is there. Raises ConfigException for one that is missing
    or no value of its type, and for what `make` raises ValueError for.
    """
    given = Properties(config).below(f"statestore.{kind}.")
    arguments = {name.replace(".", "_"): value for name, value in options.parse(given).items() if value is not None}
    try:
        return make(**arguments)
    except ValueError as cause:
        raise ConfigException(f"{given.prefix}*: {cause}") from cause
