"""The command: it says where it serves, and what it can't serve ends it with a code."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx2
import pytest

from tests.support.serve.live import Live, counted
from tests.support.serve.serving import served, wait_until
from tests.support.tools.runs import Tools
from upgrade_tools.cli.exit_codes import ExitCode


@pytest.fixture
def tools(capsys: pytest.CaptureFixture[str]) -> Tools:
    return Tools(capsys)


def test_events_tell_of_each_batch(live: Live) -> None:
    with served(live.home / live.name) as (address, _), httpx2.stream("GET", f"{address}api/events") as events:
        lines = (line for line in events.iter_lines() if line.startswith("data:"))
        assert '"batch": 2' in next(lines)
        live.commit({"fresh": counted("1", 9)})
        assert '"batch": 3' in next(lines)
        live.commit({"fresh": counted("2", 10)})
        assert '"batch": 4' in next(lines)


def test_a_token_is_made_up_and_never_logged(standing: Live) -> None:
    with served(standing.home / standing.name, "--host", "0.0.0.0") as (address, process):
        found = re.fullmatch(r"http://0\.0\.0\.0:(\d+)/#token=(\S{20,})", address)
        assert found is not None
        port, token = found.groups()
        asked = f"http://127.0.0.1:{port}/api/stores"
        assert httpx2.get(asked).status_code == 401
        assert httpx2.get(asked, headers={"authorization": f"Bearer {token}"}).status_code == 200
        process.terminate()
        out, err = process.communicate()
        assert token not in out + err


@pytest.mark.parametrize("token", ["", "a b", " a", "a\n", "g\u00e9heim", "a\x00"])
def test_a_token_that_no_header_can_have_is_wrong_usage(token: str, standing: Live, tools: Tools) -> None:
    ended = tools("serve", standing.home / standing.name, "--token", token)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "visible ASCII" in ended.err


def test_a_port_in_use_is_said(standing: Live, tools: Tools) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = tools("serve", standing.home / standing.name, "--port", port)
    assert (ended.code, ended.out) == (ExitCode.IN_USE, "")
    assert f"port {port}" in ended.err
    assert "--port" in ended.err


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda live: live.home / "nowhere", ExitCode.UNKNOWN_LAYOUT, ("found: nothing",)),
        (lambda live: live.home / "local", ExitCode.UNKNOWN_LAYOUT, ("has no state",)),
        (lambda live: without_heads(live), ExitCode.USAGE, ("there is no head", "--checkpoint")),
        (lambda live: with_damaged_head(live), ExitCode.DAMAGED, ("is not a readable head",)),
    ],
)
def test_what_can_not_be_served_ends_the_command(
    live: Live, tools: Tools, make: Any, code: ExitCode, words: tuple[str, ...]
) -> None:
    ended = tools("serve", make(live), "--port", "0")
    assert (ended.code, ended.out) == (code, "")
    assert [word for word in words if word not in " ".join(ended.err.split())] == []


def test_without_the_extra_it_says_what_to_install(standing: Live) -> None:
    program = """
        import sys
        sys.modules["starlette.applications"] = None
        from upgrade_tools.cli.app import main
        sys.exit(main())
    """
    command = [sys.executable, "-c", dedent(program), "serve", str(standing.home / standing.name)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == ExitCode.USAGE
    assert "pip install 'statestore[serve]'" in " ".join(ended.stderr.replace("│", " ").split())


def test_given_pointers_are_served_as_they_are(live: Live, tools: Tools) -> None:
    without_heads(live)
    file = live.write_pointers()
    with served(live.home / live.name, "--pointers", str(file)) as (address, _):
        wait_until(lambda: httpx2.get(f"{address}api/stores").status_code == 200)
        found = httpx2.get(f"{address}api/overview").json()
        assert found["stages"][0]["batch"] is None
        assert found["stores"][0]["entries"] == 123


def without_heads(live: Live) -> Path:
    place = live.home / live.name
    for head in (place / "heads").iterdir():
        head.unlink()
    return place


def with_damaged_head(live: Live) -> Path:
    place = live.home / live.name
    for head in (place / "heads").iterdir():
        head.write_bytes(head.read_bytes()[:-20])
    return place
