"""How a view shows itself in a notebook."""

from __future__ import annotations

from pathlib import Path

from statestore.recovery.commit.figures import SizeFigures
from statestore.recovery.heads.figures import HeadFigures, LastCall
from statestore.view import StateView
from statestore.view.notebook import state_html
from tests.support.serve.live import Live, counted, word_counts


def test_a_view_shows_its_stores_as_heads_tell_them(tmp_path: Path) -> None:
    live = Live(tmp_path, word_counts(), 2)
    live.commit({"a": counted("1", 5, source="x")}, publish=False)
    calls = {shard: LastCall(0, 5, {"counts": SizeFigures(600 * (shard + 1), 2_000, 10)}) for shard in (0, 1)}
    live.publish([0], HeadFigures((), calls))
    with StateView(live.location) as view:
        shown = view._repr_html_()
    assert "2 shards, as of batch 0 of query query" in shown
    assert "<tr><td>counts</td><td>headers-kv</td><td>1,800</td><td>4,000</td><td>20</td></tr>" in shown
    assert "<tr><td>per-minute</td><td>headers-window</td><td></td><td></td><td></td></tr>" in shown


def test_a_view_of_given_pointers_says_so(tmp_path: Path) -> None:
    live = Live(tmp_path, word_counts(), 2)
    live.commit({"a": counted("1", 5)}, publish=False)
    with StateView(live.location, pointers=list(live.pointers.values())) as view:
        assert "with the pointers that were given" in view._repr_html_()
        assert "<td>counts</td>" in view._repr_html_()


def test_what_it_shows_is_text(tmp_path: Path) -> None:
    shown = state_html("<b>&\u202e", Live(tmp_path, word_counts(), 2).metadata, None)
    assert "&lt;b&gt;&amp;\\u202e, 2 shards" in shown
