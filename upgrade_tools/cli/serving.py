"""Commands that show committed state as it goes on: in a browser, as a page, or in a terminal."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.live import Live

from statestore.errors import StateStoreError
from statestore.errors.new_state import StatePointersError
from statestore.recovery.heads.head import Head, newest_heads
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import METADATA_NAME, states_at
from upgrade_tools.cli import options as o
from upgrade_tools.cli import selecting as sel
from upgrade_tools.cli.exit_codes import ExitCode
from upgrade_tools.cli.option_groups import add_command
from upgrade_tools.cli.printing.board import board
from upgrade_tools.cli.printing.output import errors, results, say, tables
from upgrade_tools.errors import RowFileExistsError, UnknownLayoutError
from upgrade_tools.rows.entry_encoding import EntryEncoding
from upgrade_tools.serve.following import Follower
from upgrade_tools.serve.report import state_report

_GROUP = "Look"
_DEFAULT_PORT = 8471
_ROWS_IN_A_PIPE = 40


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, "serve", _GROUP, serve)
    add_command(app, "report", _GROUP, report)
    add_command(app, "top", _GROUP, top)


def _visible(token: str | None) -> str | None:
    """Return a token. Raises typer.BadParameter for one that a header can't have as it is."""
    if token is not None and not (token.isascii() and token.isprintable() and "".join(token.split()) == token != ""):
        raise typer.BadParameter("it must have visible ASCII characters alone, as requests have it in a header")
    return token


_Location = Annotated[
    str, typer.Argument(metavar="LOCATION", help="Path or URI of a state location.", callback=o.not_empty)
]
_PollSeconds = Annotated[float, typer.Option(min=0.05, max=3_600, help="How often to look for a new batch.")]


def serve(
    location: _Location,
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that others reach needs a token.", callback=o.not_empty)
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 is a free one.")] = _DEFAULT_PORT,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="STATESTORE_SERVE_TOKEN",
            help="What requests must have as `Authorization: Bearer TOKEN` (default: one is made up and printed; none "
            "on loopback).",
            callback=_visible,
        ),
    ] = None,
    poll_seconds: _PollSeconds = 1.0,
    key_as: sel.KeyAsOption = None,
    value_as: sel.ValueAsOption = None,
    committed: o.CommittedGroup,
    work_dir: o.WorkDirOption = None,
) -> int:
    """Show a state location in a browser, and answer questions about it over HTTP, batch by batch, until Ctrl-C.

    Nothing is changed. Without --pointers or --checkpoint the head is followed.
    """
    try:
        from upgrade_tools.serve import app, guard, running
    except ModuleNotFoundError as missing:
        raise typer.BadParameter(f"{missing.name} is not installed: pip install 'statestore[serve]'") from missing
    o.check_state_at(location, committed, work_dir=work_dir)
    pointers = committed.read(location)
    only_loopback = guard.is_loopback(host)
    if token is None and not only_loopback:
        token = running.made_up_token()
    with closing(Follower(location, pointers=pointers, work_dir=work_dir, poll_s=poll_seconds)) as follower:
        follower.open()
        try:
            listening = running.listening_socket(host, port)
        except OSError as cause:
            problem = f"can't listen on {host} port {port} ({cause.strerror or cause}): choose another --host or --port"
            say(errors(), f"error: {problem}")
            return ExitCode.IN_USE
        with listening:
            shown = f"[{host}]" if ":" in host else host
            secret = "" if token is None else f"#token={quote(token, safe='')}"
            say(results(), f"http://{shown}:{listening.getsockname()[1]}/{secret}")
            service = app.Service(follower, EntryEncoding(key_as, value_as))
            try:
                running.serve(app.application(service, token=token, only_loopback=only_loopback), listening)
            except KeyboardInterrupt:
                say(errors(), "ended")
    return ExitCode.OK


def report(
    location: _Location,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page, a new file.")],
    committed: o.CommittedGroup,
    work_dir: o.WorkDirOption = None,
) -> None:
    """Write what there is as one page of HTML, for a ticket: stores, headers, largest keys, topology, shards, files.

    It has keys and values of headers, and no values of entries. It needs no other file, and has no scripts.
    """
    if output.exists():
        raise RowFileExistsError(str(output))
    o.check_state_at(location, committed, work_dir=work_dir)
    with closing(Follower(location, pointers=committed.read(location), work_dir=work_dir)) as follower:
        follower.open()
        page = state_report(follower)
    with output.open("x", encoding="utf-8") as file:
        file.write(page)
    say(errors(), f"wrote {output}")


def top(location: _Location, *, poll_seconds: _PollSeconds = 1.0) -> int:
    """Show a query's batches, stores and slowest shards in the terminal, live, until Ctrl-C; into a pipe once.

    Figures are those that the query's heads have, so no shard is opened.
    """
    console, problem = tables(), None
    heads = _heads(location)
    if not console.is_terminal:
        console.print(board(location, heads, None, _ROWS_IN_A_PIPE))
        return ExitCode.OK
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as screen:
        while True:
            screen.update(board(location, heads, problem, console.height), refresh=True)
            time.sleep(poll_seconds)
            try:
                heads, problem = _heads(location), None
            except (StateStoreError, OSError) as failure:
                problem = str(failure)
    return ExitCode.OK


def _heads(location: str) -> list[Head]:
    """Return the newest heads that a query's stages have of one batch.

    Raises UnknownLayoutError if there is no state, StatePointersError if it has no head; RecoveryError, LocationError.
    """
    states = states_at(DurableLocation(location))
    if not states:
        raise UnknownLayoutError(location, found=f"no {METADATA_NAME}")
    found = newest_heads([(place, metadata.state_id) for place, metadata in states])
    if found is None:
        raise StatePointersError(location, problem="there is no head yet: the query publishes one after each batch")
    return found
