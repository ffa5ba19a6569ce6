"""The alert rules, the dashboard and the page of metrics, by Debian's Prometheus: each cause fires its alert, once."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client import start_http_server

from statestore.recovery.commit.figures import RestoreFigures, SnapshotFigures, SpillFigures, UpgradeFigures
from statestore.spark.figures import ShardFigures
from statestore.spark.metrics import METRICS
from tests.support.documentation import ROOT
from tests.support.spark.scraped import ALERTS, RULES, Driver, Scrapes, fired_at, run_promtool, with_prometheus
from tests.support.spark.told import TIMES, shard

DASHBOARD = ROOT / "docs/monitoring/dashboard.json"
PAGE = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")
NAMES = {metric.prometheus_name for metric in METRICS}
LABELS = {label for metric in METRICS for label in metric.labels}

BEGINS, ENDS = 40, 70
"""Minutes in which a cause is there; there is one batch a minute."""
RESTORED = RestoreFigures(1, 1_000, 2_000_000, 700.0)
HEALTHY = shard(1, snapshot=SnapshotFigures(1, 1))
CAUSES: Mapping[str, ShardFigures] = {
    "StateStoreRestores": replace(HEALTHY, restore=RESTORED, times=TIMES._replace(open_ms=705.0)),
    "StateStoreSlowDisk": replace(HEALTHY, times=TIMES._replace(open_ms=600.0)),
    "StateStoreSlowLocation": replace(HEALTHY, times=TIMES._replace(commit_ms=600.0)),
    "StateStoreSpills": replace(HEALTHY, spill=SpillFigures(1, 4_000_000)),
    "StateStoreSnapshotsFail": replace(HEALTHY, snapshot=SnapshotFigures(begun=1, failed=1)),
    "StateStoreSnapshotsOverdue": replace(HEALTHY, snapshot=SnapshotFigures(overdue=1)),
    "StateStoreUpgradeStalls": replace(HEALTHY, upgrade=UpgradeFigures(0, 500)),
    "StateStoreHotShard": replace(HEALTHY, times=TIMES._replace(process_ms=400.0)),
}
"""By alert, what one shard's calls are like."""
HARMLESS: Mapping[str, ShardFigures] = {
    "healthy": HEALTHY,
    "upgrading": replace(HEALTHY, upgrade=UpgradeFigures(10, 500)),
    "restarted": HEALTHY,
}
RESTARTS_AT = 55
"""When the driver of the query "restarted" begins anew, with empty local disks."""


def shards(called: ShardFigures) -> list[ShardFigures]:
    return [called, *(shard(number) for number in (0, 2, 3))]


@with_prometheus
def test_each_cause_fires_its_alert_and_nothing_else(tmp_path: Path) -> None:
    assert list(CAUSES) == ALERTS
    scrapes = Scrapes()
    for query, then in {**CAUSES, **HARMLESS}.items():
        driver = Driver(query)
        for minute in range(ENDS + 1):
            called = then if minute >= BEGINS else HEALTHY
            if query == "restarted" and minute == RESTARTS_AT:
                driver, called = Driver(query), replace(called, restore=RESTORED)
            driver.tell(shards(called), minute)
            scrapes.take(driver, minute)
    processed = 'increase(statestore_process_total{query="restarted", shard="1"}[40m])'
    ten_a_minute_over_the_restart = {
        "expr": f"count(abs({processed} - 400) < 1)",
        "eval_time": f"{ENDS}m",
        "exp_samples": [{"labels": "{}", "value": 1}],
    }
    fired = {alert: alert for alert in CAUSES}
    scrapes.check(tmp_path, fired_at(BEGINS - 1, {}), fired_at(ENDS, fired), ten_a_minute_over_the_restart)


def expressions(panels: list[dict[str, Any]]) -> list[str]:
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_rules_dashboard_and_page_name_metrics_that_there_are() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    shown = expressions(dashboard["panels"])
    texts = [RULES.read_text(encoding="utf-8"), *shown, PAGE]
    assert len(shown) > 20
    named = {name for text in texts for name in re.findall(r"\bstatestore_\w+", text)}
    assert named - NAMES == set()
    assert {label for text in texts for by in re.findall(r"by \(([^)]+)\)", text) for label in by.split(", ")} <= LABELS
    assert re.findall(r"^\| `(StateStore\w+)`", PAGE, re.MULTILINE) == ALERTS


@with_prometheus
def test_the_dashboards_expressions_are_promql(tmp_path: Path) -> None:
    shown = expressions(json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"])
    filled = [text.replace("$__rate_interval", "5m").replace("$query", ".*") for text in shown]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(filled)]
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    run_promtool(tmp_path, "check", "rules", "rules.json")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Prometheus:
    """A server that scrapes one port five times a second."""

    def __init__(self, home: Path, scraped: int) -> None:
        self.port = free_port()
        config = {
            "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "driver", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}],
        }
        (home / "prometheus.json").write_text(json.dumps(config), encoding="utf-8")
        listen = f"--web.listen-address=127.0.0.1:{self.port}"
        command = ["prometheus", "--config.file=prometheus.json", f"--storage.tsdb.path={home / 'data'}", listen]
        with (home / "log").open("w") as log:
            self.process = subprocess.Popen(command, cwd=home, stderr=log)

    def ask(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def until_it_has(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an expression once it has one."""
        for _ in range(300):
            try:
                found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
            except (urllib.error.URLError, ConnectionError):
                found = []
            if found:
                return found
            assert self.process.poll() is None
            time.sleep(0.1)
        raise AssertionError(f"nothing of {expression} in 30 s")


@with_prometheus
def test_prometheus_scrapes_loads_the_rules_and_fires(tmp_path: Path) -> None:
    driver = Driver("orders")
    server, thread = start_http_server(0, addr="127.0.0.1", registry=driver.registry)
    prometheus = Prometheus(tmp_path, server.server_port)
    try:
        driver.tell(shards(CAUSES["StateStoreSnapshotsOverdue"]), 0)
        (processed,) = prometheus.until_it_has('statestore_process_total{shard="1"}')
        (fired,) = prometheus.until_it_has('ALERTS{alertstate="firing"}')
        (group,) = prometheus.ask("rules")["groups"]
    finally:
        prometheus.process.terminate()
        prometheus.process.wait(30)
        server.shutdown()
        server.server_close()
        thread.join()
    assert (processed["metric"]["query"], processed["value"][1]) == ("orders", "10")
    assert (fired["metric"]["alertname"], fired["metric"]["query"]) == ("StateStoreSnapshotsOverdue", "orders")
    assert [(rule["name"], rule["health"]) for rule in group["rules"]] == [(alert, "ok") for alert in ALERTS]
