"""The page of `upgrade-tools serve` while a real query runs: new batches, their figures, and who wrote a key."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from orders import seeded_orders
from tests.support.serve.serving import Tab, chromium, served
from tests.support.spark.heads import wait_for_head
from tests.support.spark.queries import OrderQuery

ORDERS_PER_FILE = 20
BATCHES = 4


def test_the_page_goes_on_with_a_query(spark: SparkSession, tmp_path: Path) -> None:
    orders = seeded_orders(ORDERS_PER_FILE * BATCHES)
    files = [orders[first : first + ORDERS_PER_FILE] for first in range(0, len(orders), ORDERS_PER_FILE)]
    query = OrderQuery(spark, tmp_path, "apply_in_pandas_with_state")
    with chromium() as browser:
        query.add(files[0])
        query.run()
        wait_for_head(tmp_path / "state", 0)
        with served(tmp_path / "state", "--value-as", "int64") as (address, _):
            tab = Tab(browser)
            tab.show(address)
            tab.page.wait_for_selector("#live[data-batch='0']")
            query.add(*files[1:])
            query.run()
            tab.page.wait_for_selector(f"#live[data-batch='{BATCHES - 1}']")
            tab.until(f"document.querySelector('main').textContent.includes('The last {BATCHES} batches')")
            assert f"Records: {ORDERS_PER_FILE}, at most {ORDERS_PER_FILE}" in tab.text
            latest = orders[-1]
            tab.show(f"{address}#/stores/totals/key?id={latest.key.hex()}")
            trace = dict(latest.headers[:1])["trace-id"]
            assert trace is not None
            written = tab.page.locator(".history > li").first.inner_text()
            assert trace.decode() in written
            assert f"batch {BATCHES - 1}" in written
            assert tab.page.inner_text("pre") == str(query.totals()[latest.customer][0])
            tab.show(f"{address}#/topology")
            assert "totals ·" in tab.page.locator("svg").last.text_content()
            tab.context.close()
            assert tab.problems == []
