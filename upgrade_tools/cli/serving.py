"""Commands that show committed state as it goes on: in a browser."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from upgrade_tools.cli import options as o
from upgrade_tools.cli import selecting as sel
from upgrade_tools.cli.exit_codes import ExitCode
from upgrade_tools.cli.option_groups import add_command
from upgrade_tools.cli.printing.output import errors, results, say
from upgrade_tools.rows.entry_encoding import EntryEncoding

_GROUP = "Look"
_DEFAULT_PORT = 8471


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, "serve", _GROUP, serve)


def serve(
    location: Annotated[
        str, typer.Argument(metavar="LOCATION", help="Path or URI of a state location.", callback=o.not_empty)
    ],
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
            callback=o.not_empty,
        ),
    ] = None,
    poll_seconds: Annotated[float, typer.Option(min=0.05, max=3_600, help="How often to look for a new batch.")] = 1.0,
    key_as: sel.KeyAsOption = None,
    value_as: sel.ValueAsOption = None,
    committed: o.CommittedGroup,
    work_dir: o.WorkDirOption = None,
) -> int:
    """Show a state location in a browser, and answer questions about it over HTTP, batch by batch, until Ctrl-C.

    Nothing is changed. Without --pointers or --checkpoint the head is followed.
    """
    try:
        from upgrade_tools.serve import app, running
        from upgrade_tools.serve.following import Follower
    except ModuleNotFoundError as missing:
        raise typer.BadParameter(f"{missing.name} is not installed: pip install 'statestore[serve]'") from missing
    o.check_state_at(location, committed, work_dir=work_dir)
    pointers = committed.read(location)
    only_loopback = running.is_loopback(host)
    if token is None and not only_loopback:
        token = running.made_up_token()
    with closing(Follower(location, pointers=pointers, work_dir=work_dir, poll_s=poll_seconds)) as follower:
        follower.open()
        try:
            listening = running.listening_socket(host, port)
        except OSError as cause:
            problem = f"can't listen on {host} port {port} ({cause.strerror or cause}): choose another --port"
            say(errors(), f"error: {problem}")
            return ExitCode.IN_USE
        with listening:
            shown = f"[{host}]" if ":" in host else host
            secret = "" if token is None else f"#token={token}"
            say(results(), f"http://{shown}:{listening.getsockname()[1]}/{secret}")
            service = app.Service(follower, EntryEncoding(key_as, value_as))
            try:
                running.serve(app.application(service, token=token, only_loopback=only_loopback), listening)
            except KeyboardInterrupt:
                say(errors(), "ended")
    return ExitCode.OK
