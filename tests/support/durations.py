"""What each test costs: a pytest plugin that records it, and a command that shows it by folder, file and test.

A machine that others use makes every test slow by the clock, so tests are compared by processor time: that of the
test's process and of all processes below it, a Java virtual machine and Spark's workers included. A fixture's cost is
that of the first test that asks for it, and what a process does in the background is its share of whichever test runs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

DEFAULT_FILE = Path("build/durations.json")
SLOWEST = 20
JVM_LAUNCHERS = {"java", "spark-submit"}


@dataclass
class Cost:
    """What one test took, its fixtures included; `jvms` counts those that the test's own process started."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    jvms: int = 0
    tests: int = 1

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.wall_s + other.wall_s, self.cpu_s + other.cpu_s, self.jvms + other.jvms, self.tests + other.tests
        )


@dataclass(frozen=True)
class Process:
    """The processor time of a living process, and of those that it has started and waited for, in seconds."""

    parent: str
    own_s: float
    waited_for_s: float


def processes_below(pid: str) -> Iterator[tuple[str, Process]]:
    """Yield a process and those below it. Without /proc there are none."""
    ticks = os.sysconf("SC_CLK_TCK")
    try:
        # Behind the name, which may hold anything, field 3 comes first: the parent is 4, times are 14 to 17.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended meanwhile
        return
    user, system, user_waited_for, system_waited_for = (int(field) / ticks for field in fields[11:15])
    yield pid, Process(fields[1], user + system, user_waited_for + system_waited_for)
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # that thread has ended meanwhile; what it started belongs to another now
            for child in children.read_text().split():
                yield from processes_below(child)


def spent_s(before: dict[str, Process], now: dict[str, Process]) -> float:
    """Return the processor time between two looks at a tree of processes.

    What has ended is in the time that its parent has waited for, if the parent waits, with what was seen of it before.
    """
    nothing = Process("", 0.0, 0.0)
    ended_s: dict[str, float] = defaultdict(float)
    for pid in before.keys() - now.keys():
        parent = before[pid].parent
        while parent in before and parent not in now:
            parent = before[parent].parent
        ended_s[parent] += before[pid].own_s + before[pid].waited_for_s
    total_s = 0.0
    for pid, process in now.items():
        earlier = before.get(pid, nothing)
        total_s += process.own_s - earlier.own_s
        total_s += max(0.0, process.waited_for_s - earlier.waited_for_s - ended_s[pid])
    return total_s


class Measuring:
    """Measures in the process that runs tests: what was spent since the last report goes with the next."""

    def __init__(self) -> None:
        self.jvms = 0
        self._processes = self._look()
        sys.addaudithook(self._count_jvm)

    def _count_jvm(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "subprocess.Popen" and Path(os.fsdecode(str(arguments[0]))).name in JVM_LAUNCHERS:
            self.jvms += 1

    def pytest_runtest_logstart(self) -> None:
        self._processes, self.jvms = self._look(), 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        now = self._look()
        report.cpu_s, report.jvms = spent_s(self._processes, now), self.jvms
        self._processes, self.jvms = now, 0
        return report

    @staticmethod
    def _look() -> dict[str, Process]:
        return dict(processes_below(str(os.getpid())))


class Recording:
    """Collects what the reports say, in the process that prints them, and writes it down at the end."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.costs: dict[str, Cost] = defaultdict(Cost)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost = self.costs[report.nodeid]
        cost.wall_s += report.duration
        cost.cpu_s += report.cpu_s
        cost.jvms += report.jvms

    def pytest_sessionfinish(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps({name: asdict(cost) for name, cost in self.costs.items()}, indent=0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"what took most processor time; all of it: make durations ({self.file})")
        for line in lines(self.costs, SLOWEST):
            terminalreporter.write_line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=Path, metavar="FILE", help="write down what each test costs, for make durations")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--costs")
    if file is None:
        return
    is_worker, has_workers = hasattr(config, "workerinput"), bool(config.getoption("numprocesses", None))
    if is_worker or not has_workers:
        config.pluginmanager.register(Measuring())
    if not is_worker:
        config.pluginmanager.register(Recording(file))


def read_costs(file: Path) -> dict[str, Cost]:
    return {name: Cost(**cost) for name, cost in json.loads(file.read_text()).items()}


def by(costs: dict[str, Cost], group: Callable[[str], str]) -> dict[str, Cost]:
    """Return the sums of the tests whose names `group` gives the same name."""
    sums: dict[str, Cost] = {}
    for name, cost in costs.items():
        key = group(name)
        sums[key] = sums[key] + cost if key in sums else cost
    return sums


def lines(costs: dict[str, Cost], count: int) -> Iterator[str]:
    """Yield a table's lines: the dearest `count`, by processor time."""
    yield f"{'CPU s':>8} {'wall s':>8} {'JVMs':>5} {'tests':>6}"
    dearest = sorted(costs.items(), key=lambda item: -item[1].cpu_s)
    for name, cost in dearest[:count]:
        yield f"{cost.cpu_s:8.1f} {cost.wall_s:8.1f} {cost.jvms:5} {cost.tests:6}  {name}"


def main() -> None:
    """Print what the last `make test` took."""
    parser = argparse.ArgumentParser(description="Show what tests cost, as `make test` recorded it.")
    parser.add_argument("file", type=Path, nargs="?", default=DEFAULT_FILE)
    parser.add_argument("--count", type=int, default=2 * SLOWEST, help="how many files, and how many tests")
    asked = parser.parse_args()
    if not asked.file.exists():
        sys.exit(f"{asked.file} is not there: `make test` writes it")
    costs = read_costs(asked.file)
    for title, group, count in (
        ("all", lambda name: "", 1),
        ("folders", lambda name: str(Path(name.partition("::")[0]).parent), len(costs)),
        ("files", lambda name: name.partition("::")[0], asked.count),
        ("tests", lambda name: name, asked.count),
    ):
        print(f"\n{title}")
        print("\n".join(lines(by(costs, group), count)))


if __name__ == "__main__":
    main()
