"""What a Prometheus has of queries that it scrapes, as promtool takes it, and what the alert rules make of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from statestore.spark import StateStoreListener
from statestore.spark.figures import ShardFigures
from tests.support.documentation import ROOT
from tests.support.spark.told import progress

RULES = ROOT / "docs/monitoring/alerts.yml"
ALERTS = re.findall(r"alert: (\w+)", RULES.read_text(encoding="utf-8"))
_IN_RULES = {*re.findall(r"statestore_\w+", RULES.read_text(encoding="utf-8")), "statestore_process_total"}

with_prometheus = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None,
    reason="make prometheus installs Debian's package",
)


class Driver:
    """A listener with a registry, which is told of one query."""

    def __init__(self, query: str) -> None:
        self.query, self.run = query, uuid.uuid4()
        self.registry = CollectorRegistry()
        self._listener = StateStoreListener().to_prometheus(self.registry)

    def tell(self, shards: Iterable[ShardFigures], batch_id: int, *, duration_ms: int = 700) -> None:
        self._listener.onQueryProgress(
            progress(*shards, batch_id=batch_id, run=self.run, name=self.query, batchDuration=duration_ms)
        )

    def samples(self) -> Iterator[tuple[str, float]]:
        """Yield what a scrape gets of the rules' metrics."""
        for family in self.registry.collect():
            for sample in family.samples:
                if sample.name in _IN_RULES:
                    labels = ",".join(f"{name}={json.dumps(value)}" for name, value in sample.labels.items())
                    yield f"{sample.name}{{{labels}}}", sample.value


class Scrapes:
    """Series, with a sample of each scrape."""

    def __init__(self, interval_minutes: int = 1) -> None:
        self.interval = f"{interval_minutes}m"
        self._series: dict[str, list[str]] = {}

    def take(self, driver: Driver, number: int) -> None:
        """Take the scrape of that number; a series may be there only later."""
        for series, value in driver.samples():
            values = self._series.setdefault(series, [])
            values += ["_"] * (number - len(values)) + [str(value)]

    def check(self, home: Path, *expressions: Mapping[str, Any]) -> None:
        """Fail unless, with the rules, promtool finds what the expressions expect."""
        series = [{"series": name, "values": " ".join(values)} for name, values in self._series.items()]
        tests = [{"interval": self.interval, "input_series": series, "promql_expr_test": expressions}]
        content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
        (home / "test.json").write_text(json.dumps(content), encoding="utf-8")  # which is YAML, too
        run_promtool(home, "test", "rules", "test.json")


def fired_at(minute: int, fired: Mapping[str, str], matcher: str = "") -> dict[str, Any]:
    """Expect these alerts, each of its query, and no others, among those that the matcher has."""
    samples = [{"labels": f'{{alertname="{alert}", query="{query}"}}', "value": 1} for alert, query in fired.items()]
    expression = f'count by (alertname, query) (ALERTS{{alertstate="firing", {matcher}}})'
    return {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}


def run_promtool(home: Path, *arguments: str) -> None:
    """Run it in a directory; fail with what it says."""
    told = subprocess.run(["promtool", *arguments], cwd=home, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
