"""What given runs of peers come to: the file of results, tables, verdicts on targets, and the page they go to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers.__main__ import DOCS
from benchmarks.peers.catalogue import DSL_PEERS, PEERS
from benchmarks.peers.figures import PeerFigures, peer_figures, write_figures
from benchmarks.peers.page import Setting, tables, write_page
from benchmarks.peers.plans import FIRST, STEADY, Plan
from benchmarks.peers.run import RunFigures
from benchmarks.peers.targets import BATCH, FIRST_TARGETS, SCALAR, STEADY_TARGETS, verdicts

ISSUED = {
    "streams-alo",
    "streams-eos",
    "quix",
    "spark-python-state",
    "spark-pass-through",
    "spark-map-arrow",
    "statestore-scalar",
    "statestore-batch",
}
SETTING = Setting("2026-11-22", 2, 0.25, 3.0, {"Kafka": "4.3.1"}, 0.012, replace(FIRST, rounds=3))
PROGRAM = FIRST.command
BEGIN, END = f"<!-- what {PROGRAM} writes begins -->\n", f"<!-- what {PROGRAM} writes ends -->\n"


def run(
    records_per_s: float, *, python_us: float = 1, java_us: float = 2, mb: float = 500, first_s: float = 3
) -> RunFigures:
    return RunFigures(records_per_s, python_us, java_us, 4.0, mb, first_s, 20.0, 0.03)


def found() -> list[PeerFigures]:
    return [
        peer_figures("streams-alo", 1_000_000, [run(80_000), run(100_000), run(70_000)]),
        peer_figures("quix", 1_000_000, [run(20_000)]),
        peer_figures("spark-pass-through", 1_000_000, [run(120_000, java_us=10, first_s=10)]),
        peer_figures(
            "statestore-scalar", 1_000_000, [run(52_000, python_us=10.5, java_us=13, mb=1_300, first_s=14.51)]
        ),
    ]


def test_runs_come_to_least_median_and_most() -> None:
    runs = [run(80, python_us=3, mb=5), run(100, python_us=1, mb=7), run(70, python_us=2, mb=6)]
    assert peer_figures("quix", 60, runs) == {
        "peer": "quix",
        "records_per_s": {"min": 70, "median": 80, "max": 100},
        "steady_cpu_us": {"python": 2, "java": 2},
        "broker_cpu_us": 4,
        "peak_pss_mb": 6,
        "first_output_s": 3,
        "looking_cores": 0.03,
        "records": 60,
        "rounds": 3,
    }


def test_the_file_of_results_is_a_list_of_peers(tmp_path: Path) -> None:
    write_figures(tmp_path / "results" / "peers.json", found())
    read = json.loads((tmp_path / "results" / "peers.json").read_text())
    assert [each["peer"] for each in read] == ["streams-alo", "quix", "spark-pass-through", "statestore-scalar"]
    assert read == found()


def of_dsl(operator: str, one: float, two: float, here: float) -> list[PeerFigures]:
    """What Kafka's DSL on one thread and on two, and this one, come to."""
    rates = zip(DSL_PEERS[operator], (one, two, here), strict=True)
    return [peer_figures(peer.name, 5_000_000, [run(rate)]) for peer, rate in rates]


def test_every_peer_is_there() -> None:
    assert PEERS.keys() >= ISSUED
    assert list(FIRST.peers) == list(PEERS.values())
    assert {*STEADY.peers} >= {*DSL_PEERS["count"], *DSL_PEERS["table-table join"], PEERS["statestore-scalar-eos"]}


def test_steady_rates_are_by_the_better_of_one_thread_and_two() -> None:
    rates = {"streams-alo": 90.0, "streams-alo-2": 100, "streams-eos": 100, "streams-eos-2": 80}
    others = [peer_figures(name, 60, [run(rate)]) for name, rate in rates.items()]
    own = [peer_figures(BATCH, 60, [run(119)]), peer_figures(f"{BATCH}-eos", 60, [run(130)])]
    operators = [*of_dsl("count", 90, 100, 120), *of_dsl("sessions", 100, 90, 79), *of_dsl("tumbling windows", 9, 9, 9)]
    said = [(each.figure, each.outcome) for each in verdicts(STEADY_TARGETS, [*others, *own, *operators])]
    assert said == [(1.19, "NOT MET"), (1.3, "met"), (0.79, "NOT MET"), (1, "met")]
    assert {each.outcome for each in verdicts(STEADY_TARGETS, [*others[1:], *own[:1]])} == {"not measured"}


def test_operators_have_a_table_of_their_own() -> None:
    text = tables(replace(SETTING, plan=STEADY), [*of_dsl("count", 90, 100, 120), *of_dsl("sessions", 9, 9, 9)[1:]], {})
    assert "5,000,000 records, 250,000 a batch, measured from 50% on, 3 rounds" in text
    (line,) = (line for line in text.splitlines() if line.startswith("| count |"))
    assert line == "| count | 90 | 100 | 120 | 1.20 | 3.0 | 3.0 |"
    assert "| sessions |" not in text, "an operator without all of its peers"
    assert "| peer |" not in text, "a table without rows"


def test_the_page_says_what_looking_took() -> None:
    assert "Looking took at most 3.0% of a core, in the broker 1.2%." in tables(SETTING, found(), {})


def test_tables_have_ratios_and_those_without_figures() -> None:
    text = tables(SETTING, found(), {"streams-eos": "it failed"})
    assert (
        "2026-11-22, 2 cores, load 0.2 before the start, 3.0 at most; 1,000,000 records, 250,000 a batch, "
        "measured from 25% on, 3 rounds. Kafka 4.3.1.\n" in text
    )
    assert "Other work shared the machine" in replace(SETTING, load_most=9).sentence()
    (line,) = (line for line in text.splitlines() if line.startswith("| `statestore-scalar` |"))
    assert "| 52,000 | 0.65 | 10.5 | 13.0 | 4.0 | 1,300 | 14.5 |" in line
    assert "`, met: records/s : streams-alo's 0.65, at least 0.65; records/s : quix's" in text
    assert "`statestore-batch`, not measured: records/s : streams-alo's at least 0.9; " in text
    assert "- `streams-eos` has no figures: it failed." in text


def test_tables_without_kafka_streams_have_no_ratios() -> None:
    assert "| 20,000 |  | 1.0 |" in tables(SETTING, found()[1:], {})


@pytest.mark.parametrize(
    ("what", "figure", "outcome"),
    [
        ("records/s : streams-alo's", 0.65, "met"),
        ("Python's time a record, us", 10.5, "NOT MET"),
        ("records/s : quix's", 2.6, "met"),
        ("Java's time a record : spark-pass-through's", 1.3, "met"),
        ("records/s : spark-python-state's", None, "not measured"),
        ("peak PSS, MB", 1300, "met"),
        ("first output after spark-pass-through's, s", 4.51, "NOT MET"),
    ],
)
def test_each_target_is_met_or_not_or_not_measured(what: str, figure: float | None, outcome: str) -> None:
    (verdict,) = (
        each for each in verdicts(FIRST_TARGETS, found()) if each.target.what == what and each.target.peer == SCALAR
    )
    assert verdict.figure == (None if figure is None else pytest.approx(figure))
    assert verdict.outcome == outcome


def test_what_is_not_there_is_not_measured() -> None:
    assert {each.outcome for each in verdicts(FIRST_TARGETS, found()) if each.target.peer == BATCH} == {"not measured"}
    assert {target.peer for target in FIRST_TARGETS} == {SCALAR, BATCH}


def test_only_what_is_between_the_marks_of_a_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "peers.md"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    write_page(page, "new\n", PROGRAM)
    write_page(page, "newer\n", PROGRAM)
    assert page.read_text() == f"before\n{BEGIN}\nnewer\n\n{END}after\n"


def test_a_page_without_marks_is_left(tmp_path: Path) -> None:
    page = tmp_path / "peers.md"
    page.write_text("before\n")
    with pytest.raises(ValueError, match="does not have the lines"):
        write_page(page, "new\n", PROGRAM)
    assert page.read_text() == "before\n"


@pytest.mark.parametrize("plan", [FIRST, STEADY], ids=lambda plan: plan.name)
def test_the_page_of_the_documentation_has_the_marks(tmp_path: Path, plan: Plan) -> None:
    text = (DOCS / "peers.md").read_text(encoding="utf-8")
    page = tmp_path / "peers.md"
    page.write_text(text)
    write_page(page, "new\n", plan.command)
    left = page.read_text()
    assert left.count("\nnew\n") == 1
    assert left.count("<!--") == text.count("<!--") == 4
