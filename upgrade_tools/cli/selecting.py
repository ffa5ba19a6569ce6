"""The options that select entries, and what they become."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import SerializationError
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.serde import STANDARD_SERDES, standard_serde
from upgrade_tools.rows.entry_encoding import bytes_in
from upgrade_tools.rows.selection import HeaderCondition, Selection
from upgrade_tools.states.state import State

_WHICH = "Which entries (all conditions must hold)"

KeyOption = Annotated[
    str | None, typer.Option("--key", help="Only this key: text, 0x... in hex, or text:...", rich_help_panel=_WHICH)
]
PrefixOption = Annotated[
    str | None, typer.Option("--prefix", help="Only keys with this prefix, written as --key.", rich_help_panel=_WHICH)
]
TimeFromOption = Annotated[
    int | None,
    typer.Option(
        "--time-from",
        metavar="MS",
        help="Not before this time: by the start of a window, the end of a session, the start of a version's validity, "
        "else the value's timestamp.",
        rich_help_panel=_WHICH,
    ),
]
TimeToOption = Annotated[
    int | None,
    typer.Option("--time-to", metavar="MS", help="Not after this time, which is inclusive.", rich_help_panel=_WHICH),
]
WindowStartOption = Annotated[
    int | None,
    typer.Option("--window-start", metavar="MS", help="Only windows that start at this time.", rich_help_panel=_WHICH),
]
VersionAtOption = Annotated[
    int | None,
    typer.Option("--version-at", metavar="MS", help="Only versions valid at this time.", rich_help_panel=_WHICH),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="KEY[=VALUE]",
        help="Only entries with this header, and value, written as --key; may be repeated.",
        rich_help_panel=_WHICH,
    ),
]
PartOption = Annotated[
    int | None, typer.Option("--part", min=0, help="Only this partition or shard.", rich_help_panel=_WHICH)
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=0,
        max=sys.maxsize,
        help="At most this many entries; in versioned stores, keys.",
        rich_help_panel=_WHICH,
    ),
]
LiveAtOption = Annotated[
    int | None,
    typer.Option(
        "--live-at",
        metavar="MS",
        min=0,
        max=MAX_TIME_MS,
        help="Only what has not expired at this time, by a time to live or a header (default: all that is stored).",
        rich_help_panel=_WHICH,
    ),
]


def encoding(name: str | None) -> str | None:
    """Return the name of an encoding; exits with a usage error if it is not one."""
    try:
        return None if name is None else standard_serde(name).name
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


KeyAsOption = Annotated[
    str | None,
    typer.Option(
        "--key-as",
        metavar="ENCODING",
        help=f"Read keys, and --key, as {', '.join(STANDARD_SERDES)} (default: text if they are text).",
        callback=encoding,
    ),
]
ValueAsOption = Annotated[
    str | None, typer.Option("--value-as", metavar="ENCODING", help="Read values likewise.", callback=encoding)
]
HeadersOption = Annotated[bool, typer.Option("--headers/--no-headers", help="Show headers.")]


def key_of(text: str | None, option: str, key_as: str | None = None) -> bytes | None:
    """Return the bytes that an option or argument stands for; exits with a usage error if it stands for none."""
    if text is None:
        return None
    try:
        return bytes_in(text, key_as)
    except (ValueError, SerializationError) as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def conditions_of(headers: Sequence[str] | None) -> tuple[HeaderCondition, ...]:
    """Return the condition that each `--header` stands for."""
    found = []
    for text in headers or ():
        key, equals, value = text.partition("=")
        found.append(HeaderCondition(key, key_of(value, "--header") if equals else None))
    return tuple(found)


def checked_selection(selection: Selection, spec: StoreSpec) -> Selection:
    """Return a selection that a store can be asked for; exits with a usage error otherwise."""
    try:
        selection.check(spec)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return selection


def parts_of(state: State, part: int | None) -> tuple[int, ...]:
    """Return the parts of the one store to be read, or that one; exits with a usage error if there is no such part."""
    if part is None:
        return state.parts_of(state.the_spec())
    if part not in state.parts:
        listed = ", ".join(map(str, state.parts[:20])) + (", ..." if len(state.parts) > 20 else "")
        raise typer.BadParameter(f"there is no part {part} in {state.path}, only {listed}", param_hint="--part")
    return (part,)
