"""The page in a browser: each view, what can be done in it, what is hostile, and new batches as they come."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statestore import Headers, ValueTimestampHeaders
from tests.support.serve.live import HOSTILE_KEY, LARGE, SCRIPT, Live, counted
from tests.support.serve.serving import Tab, chromium, served, wait_until

ALPHA = f"#/stores/counts/key?id={b'alpha'.hex()}"
HOSTILE = f"#/stores/counts/key?id={HOSTILE_KEY.encode().hex()}"
VIEWS = {
    "#/": "Overview",
    "#/stores/counts": "counts",
    "#/stores/per-minute": "per-minute",
    "#/stores/counts/entries": "Entries of counts",
    ALPHA: "alpha",
    "#/batches": "Batches",
    "#/batches/0/2": "Batch 2",
    "#/versions/0/0/1": "Version 1 of shard 0",
    "#/topology": "Topology",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def address(standing: Live, browser: Any) -> Iterator[str]:
    with served(standing.home / standing.name) as (found, _):
        yield found


@pytest.fixture
def tab(browser: Any) -> Iterator[Tab]:
    made = Tab(browser)
    yield made
    made.context.close()
    assert made.problems == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")])
def test_every_view_is_shown_in_every_size_and_theme(browser: Any, address: str, width: int, scheme: Any) -> None:
    tab = Tab(browser, width, scheme)
    for view, heading in VIEWS.items():
        tab.show(address + view)
        assert tab.heading == heading, view
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width, view
        assert tab.page.locator("main, header, nav").count() == 3
        tables = tab.page.locator("main table")
        assert tables.locator("caption").count() == tables.count()
        assert tables.locator("thead th[scope=col]").count() == tables.locator("thead th").count()
    background = tab.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    lightness = [int(part) for part in re.findall(r"\d+", background)][:3]
    assert (min(lightness) > 200) == (scheme == "light")
    tab.context.close()
    assert tab.problems == []


def test_the_overview_leads_to_a_store_and_its_entries(tab: Tab, address: str) -> None:
    tab.show(address)
    tab.page.get_by_role("link", name="counts").first.click()
    tab.page.wait_for_selector("h1:text-is('counts')")
    assert "Counted: all 123 entries were read." in tab.text
    tab.page.get_by_role("link", name="Entries").click()
    tab.page.wait_for_selector("h1:has-text('Entries of counts')")
    assert len(tab.rows()) == 50


def test_entries_are_filtered_by_the_form_and_by_chips(tab: Tab, address: str) -> None:
    tab.show(f"{address}#/stores/counts/entries")
    tab.page.get_by_label("Prefix").fill("word-01")
    tab.page.get_by_role("button", name="Show").click()
    tab.until("document.querySelectorAll('main tbody tr').length === 10")
    assert "prefix=word-01" in tab.page.url
    tab.show(f"{address}#/stores/counts")
    tab.page.locator("a.chip", has_text="def 1").click()
    tab.until("document.querySelectorAll('main tbody tr').length === 1")
    assert tab.rows()[0].startswith("alpha")
    assert tab.page.get_by_label("Header").input_value() == "trace-id=text:def"


def test_a_hostile_header_can_be_asked_for(tab: Tab, address: str) -> None:
    tab.show(f"{address}#/stores/counts")
    tab.page.locator("tbody th a.chip", has_text="x-<script>").click()
    tab.until("document.querySelectorAll('main tbody tr').length === 1")
    assert tab.rows()[0].startswith("evil")


def test_pages_go_on_to_the_end(tab: Tab, address: str) -> None:
    tab.show(f"{address}#/stores/counts/entries?header=tenant")
    found = tab.rows()
    while tab.page.get_by_role("link", name="Next page").count():
        before = tab.page.url
        tab.page.get_by_role("link", name="Next page").click()
        wait_until(lambda before=before: tab.page.url != before)  # type: ignore[misc]
        tab.until_shown()
        found += tab.rows()
    assert len({row.split()[0] for row in found}) == 120


def test_a_keys_history_says_who_wrote_it(tab: Tab, address: str) -> None:
    tab.show(address + ALPHA)
    writes = tab.page.locator(".history > li").all_inner_texts()
    assert [re.findall(r"Version (\d)|(orders|import)", write)[:2] for write in writes] == [
        [("3", ""), ("", "orders")],
        [("2", ""), ("", "orders")],
        [("1", ""), ("", "import")],
    ]
    assert "This is all since the state began." in tab.text
    tab.show(f"{address}#/stores/counts/key?id={b'gone'.hex()}")
    assert "It is not there." in tab.text
    assert "deleted" in tab.page.locator(".history > li").first.inner_text()


def test_a_batchs_changes_have_before_and_after(tab: Tab, address: str) -> None:
    tab.show(f"{address}#/batches")
    tab.page.get_by_role("link", name="2", exact=True).click()
    tab.page.wait_for_selector("h1:text-is('Batch 2')")
    alpha = tab.page.locator("tr", has=tab.page.get_by_role("link", name="alpha"))
    assert (
        re.sub(r"\s+", " ", alpha.inner_text())
        == "alpha counts 2 source orders trace-id abc 3 source orders trace-id def"
    )


def test_a_large_value_is_cut_and_can_be_saved(tab: Tab, address: str) -> None:
    tab.show(f"{address}#/stores/counts/key?id={b'large'.hex()}")
    assert "The beginning of 1.0 MB." in tab.text
    assert len(tab.page.inner_text("pre")) == 20_000
    with tab.page.expect_download() as saving:
        tab.page.get_by_role("button", name="Save all of it").click()
    assert saving.value.path().read_text() == LARGE
    tab.page.get_by_role("button", name="hex").click()
    assert tab.page.inner_text("pre").startswith("78 78 ")


def test_nothing_hostile_runs_or_hides(tab: Tab, address: str) -> None:
    for view in (*VIEWS, HOSTILE, "#/stores/counts/entries?prefix=evil"):
        tab.show(address + view)
        assert tab.page.title().endswith("Committed state")
        assert tab.page.locator("main script, main img, main iframe, main style").count() == 0
        assert not re.search("[\u202e\x1b]", tab.text)


def test_hostile_content_is_shown_as_it_is(tab: Tab, address: str) -> None:
    tab.show(address + HOSTILE)
    assert tab.heading.replace("\n", "") == HOSTILE_KEY.replace("\x1b", "\\u001b").replace("\u202e", "\\u202e")
    assert tab.page.inner_text("pre") == SCRIPT


def test_a_script_of_the_content_would_be_refused(browser: Any, address: str) -> None:
    tab = Tab(browser)
    tab.show(address)
    tab.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title=1\">')")
    tab.page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'document.title=1'}))"
    )
    tab.page.wait_for_timeout(100)
    assert tab.page.title() == "Overview · Committed state"
    assert any("Content Security Policy" in problem for problem in tab.problems)
    tab.context.close()


def test_the_keyboard_reaches_all(tab: Tab, address: str) -> None:
    tab.show(address)
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "Skip to content"
    reached = []
    for _ in range(6):
        tab.page.keyboard.press("Tab")
        reached.append(tab.page.evaluate("document.activeElement.textContent"))
        assert tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert reached[:5] == ["Committed state", "Overview", "Batches", "Topology", "counts"]
    tab.page.keyboard.press("Shift+Tab")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("h1:text-is('counts')")
    assert tab.page.evaluate("document.activeElement.tagName") == "H1", "a reader is told of the new view"
    tab.show(f"{address}#/topology")
    tab.page.locator(".skip").focus()
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "main"
    assert tab.heading == "Topology"


def test_new_batches_are_shown_as_they_come(tab: Tab, live: Live) -> None:
    with served(live.home / live.name) as (address, _):
        tab.show(address)
        status = tab.page.get_by_role("status").first
        assert tab.page.locator("#live").get_attribute("aria-live") == "polite"
        for batch in (3, 4):
            live.commit({f"fresh-{batch}": counted("1", 9)})
            tab.page.wait_for_selector(f"#live[data-batch='{batch}']")
            assert status.inner_text().startswith(f"Batch {batch}")
            tab.until(f"document.querySelector('main tbody td.number').textContent === '{120 + batch + 1}'")
        tab.show(f"{address}#/batches")
        assert [row.split()[0] for row in tab.rows()] == ["4", "3", "2"]


def test_an_empty_key_and_header_are_links(tab: Tab, live: Live) -> None:
    live.commit({"": ValueTimestampHeaders("of nothing", 9, Headers([("", b"")]))})
    with served(live.home / live.name) as (address, _):
        tab.show(f"{address}#/stores/counts/entries?to=0x")
        tab.page.locator("tbody a.chip").click()
        wait_until(lambda: tab.page.url.endswith("/entries?header=0x"))
        tab.until("document.querySelectorAll('main tbody tr').length === 1")
        tab.page.locator("tbody th a").click()
        tab.until("document.querySelector('main .history') !== null")
        assert tab.page.locator("main pre").inner_text() == "of nothing"


def test_a_page_goes_on_in_the_next_batch(tab: Tab, live: Live) -> None:
    with served(live.home / live.name) as (address, _):
        tab.show(f"{address}#/stores/counts/entries")
        following = tab.page.get_by_role("link", name="Next page").get_attribute("href")
        first = {row.split()[0] for row in tab.rows()}
        live.commit({"fresh": counted("1", 9)})
        tab.page.wait_for_selector("#live[data-batch='3']")
        tab.show(f"{address}{following}")
        assert "The state has gone on: this page is of batch 3." in tab.text
        assert first.isdisjoint(row.split()[0] for row in tab.rows())


TOKEN = "open%zz&sesame#/+"


def test_with_a_token_the_page_asks_for_it(browser: Any, standing: Live) -> None:
    with served(standing.home / standing.name, "--token", TOKEN) as (address, _):
        plain = address.partition("#")[0]
        tab = Tab(browser)
        tab.show(plain)
        assert tab.heading == "A token is needed"
        tab.page.get_by_label("Token").fill(TOKEN)
        tab.page.get_by_role("button", name="Go on").click()
        tab.page.wait_for_selector("h1:text-is('Overview')")
        tab.context.close()
        tab = Tab(browser)
        tab.show(address)
        tab.page.wait_for_selector("h1:text-is('Overview')")
        assert TOKEN not in tab.page.url
        tab.page.wait_for_selector("#live[data-batch='2']")
        tab.context.close()
        assert tab.problems == []


def test_what_has_no_answer_is_said(browser: Any, standing: Live, tmp_path: Path) -> None:
    # A process that is killed leaves its copies.
    with served(standing.home / standing.name, "--work-dir", str(tmp_path)) as (address, process):
        tab = Tab(browser)
        tab.show(f"{address}#/stores/none")
        assert "there is no store 'none'" in tab.page.get_by_role("alert").inner_text()
        tab.show(f"{address}#/nowhere")
        assert tab.heading == "Not found"
        process.kill()
        tab.page.wait_for_selector("#live .problem")
        tab.page.evaluate("location.hash = '#/batches'")
        tab.page.wait_for_selector("[role=alert]:has-text('can\\'t be reached')")
        tab.context.close()
