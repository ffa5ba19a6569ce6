"""The pictures of docs/look-inside.md: `--pictures` makes them anew, with the state that is made here."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import httpx2
import pytest

from statestore.recovery.heads.figures import HeadFigures, LastCall, RecentBatch
from tests.support.documentation import ROOT
from tests.support.serve.live import Live, counted, word_counts
from tests.support.serve.serving import Tab, chromium, served, wait_until

PAGE = ROOT / "docs/look-inside.md"
PICTURES = ROOT / "docs/pictures"
KEY = f"#/stores/counts/key?id={b'lamp'.hex()}"
VIEWS: dict[str, tuple[str, int, Literal["light", "dark"]]] = {
    "overview": ("#/", 1100, "light"),
    "store": ("#/stores/counts", 1100, "light"),
    "key": (KEY, 1100, "light"),
    "batch": ("#/batches/0/11", 1100, "dark"),
    "topology": ("#/topology", 1100, "light"),
    "phone": (KEY, 360, "dark"),
}
TALLEST = 900
WORDS = ("lamp", "chair", "river", "cloud", "stone", "apple", "bread", "paper", "glass", "light", "water", "house")


class Measured(Live):
    """Tells figures with each head, as a query does."""

    def publish(self, changed: list[int], figures: HeadFigures | None = None) -> None:
        time_ms = 1_764_000_000_000 + 10_000 * self.batch
        slow = 40 * (self.batch % 4)
        times = {"open_ms": 41 + slow, "process_ms": 120 + 2 * slow, "commit_ms": 66 + slow, "close_ms": 23}
        recent = RecentBatch(self.batch, time_ms, 310 + 2 * slow, 180 + 7 * slow // 4, 9_000, times)
        calls = {shard: LastCall(self.batch, 60 + 13 * shard + slow, {}) for shard in changed}
        self.told = self.told.then(HeadFigures((recent,), calls))
        super().publish(changed, self.told)

    told = HeadFigures()


def pictured(home: Path) -> Measured:
    """A state of counts of words, written by two services for three tenants."""
    live = Measured(home, word_counts(), 4, name="word-counts")
    start_ms = 1_763_999_990_000
    for batch in range(8):
        time_ms = start_ms + 10_000 * batch
        live.commit(
            {
                word: counted(
                    f'{{"count": {batch * 3 + place % 4 + 1}, "last": "shelf-{place % 5}"}}',
                    time_ms + 137 * place,
                    source="orders" if (place + batch) % 3 else "returns",
                    tenant=("north", "south", "west")[place % 3],
                    trace_id=f"{(place + 1) * (batch + 11) * 2654435761 % 2**32:08x}",
                )
                for place, word in enumerate(WORDS)
                if batch == 0 or (place * 7 + batch) % 3 == 0
            }
            if batch != 5
            else {
                "river": None,
                "lamp": counted('{"count": 9, "last": "shelf-2"}', time_ms, source="returns", tenant="north"),
            }
        )
    return live


def test_the_page_has_each_picture() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(pictures/([\w-]+)\.png\)", PAGE.read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(VIEWS)
    assert sorted(path.name for path in PICTURES.iterdir()) == sorted(f"{name}.png" for name in VIEWS)


def test_pictures_are_made(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--pictures"):
        pytest.skip("only with --pictures")
    PICTURES.mkdir(exist_ok=True)
    for picture in PICTURES.iterdir():
        picture.unlink()
    with TemporaryDirectory(prefix="state-") as home:
        make_pictures(pictured(Path(home)))
    assert sorted(path.stem for path in PICTURES.iterdir()) == sorted(VIEWS)


def make_pictures(live: Live) -> None:
    with served(live.home / live.name) as (address, _), chromium() as browser:
        for batch in range(4):
            words = (
                {"lamp": "orders", "river": "returns"}
                if batch < 3
                else dict.fromkeys(("lamp", "paper", "cloud"), "orders")
            )
            live.commit(
                {
                    word: counted(
                        f'{{"count": {20 + batch}, "last": "shelf-1"}}',
                        1_764_000_080_000 + 10_000 * batch,
                        source=source,
                        tenant="north",
                        trace_id=f"{(batch + 7) * 2654435761 % 2**32:08x}",
                    )
                    for word, source in words.items()
                }
            )
        wait_until(lambda: f'"batch": {live.batch}' in httpx2.get(f"{address}api/batches").text.replace(":", ": "))
        for name, (view, width, scheme) in VIEWS.items():
            picture(browser, f"{address}{view}", width, scheme, PICTURES / f"{name}.png")


def picture(browser: Any, address: str, width: int, scheme: Literal["light", "dark"], file: Path) -> None:
    tab = Tab(browser, width, scheme)
    tab.page.set_viewport_size({"width": width, "height": 100})
    tab.show(address)
    tab.page.wait_for_timeout(300)
    tall = tab.page.evaluate("document.documentElement.scrollHeight")
    tab.page.set_viewport_size({"width": width, "height": min(tall, TALLEST)})
    tab.page.screenshot(path=str(file))
    tab.context.close()
    assert tab.problems == []
