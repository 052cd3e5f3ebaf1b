"""The page: what stands in it for one run, for several, and for what is left of a broken one."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from full_runs import HOSTILE, write_broken_run, write_full_run, write_hostile_run
from made_runs import episode, event, facts, reading, sample, write_run

from redline.jsonl import read_records
from redline.monitor.hardware import flat
from redline.report.charts import LineChart, SpreadChart
from redline.report.page import Page, build_page
from redline.report.relation import choose_runs, relate
from redline.report.run_charts import hardware_charts
from redline.report.run_files import load_runs
from redline.report.run_summary import summarise

VOID = {"meta", "link", "br", "img"}
OUTSIDE = re.compile(r"""(?:src|href)\s*=\s*["']?(?!#|data:,)[^"'>\s]+|url\((?!#)|@import|https?://""")


class Outline(HTMLParser):
    """Notes every element, and that each one is closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outline(page: Page) -> Outline:
    found = Outline()
    found.feed(page.html)
    assert found.open == []
    return found


def page_of(*paths: Path) -> Page:
    runs = load_runs(paths)
    pairs = [(run, summarise(run)) for run in runs]
    compared, left_out = choose_runs(pairs)
    relation = relate([summary for _, summary in compared], left_out) if len(runs) > 1 else None
    return build_page(pairs, relation, unix_s=0.0)


def chart_of(page: Page, owner: str, name: str) -> Any:
    [chart] = [chart for whose, chart in page.charts if (whose, chart.name) == (owner, name)]
    return chart


def own_markup(page: Page) -> str:
    """Return the page without the library that it holds."""
    return re.sub(r"<script>/\*.*?</script>", "", page.html, flags=re.DOTALL)


def headings(page: Page) -> list[str]:
    return re.findall(r"<h[1-4]>(.*?)</h[1-4]>", page.html)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_full_run(tmp_path_factory.mktemp("full") / "run", num_samples=140)


@pytest.fixture(scope="module")
def full_page(full: Path) -> Page:
    return page_of(full)


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("hostile")
    return page_of(write_hostile_run(folder / "<b>one"), write_hostile_run(folder / "two", seed=2))


def test_page_of_a_run_has_every_part(full_page: Page) -> None:
    outline(full_page)
    assert headings(full_page) == [
        "dqn on CartPole-v1",
        "What is missing",  # a GPU is lost in the end
        "Learning",
        "Speed, and where the time went",
        "Settings: requested → effective",
        "Events",
        "Command and machine",
        "Hardware",
        "Return against CPU and GPU time",
        "Processor",
        "Memory",
        "Disk",
        "GPUs",
        "Processes and the monitor",
    ]
    for text in ("12_558_848", "gpu-lost", "GPU is lost", "samples_per_step", "replay.bytes", "batch-size"):
        assert text in full_page.html


def test_every_series_of_the_hardware_is_in_some_chart(full: Path) -> None:
    [run] = load_runs([full])
    recorded = read_records(full / "hardware.jsonl")
    wanted = {name for row in recorded for name in flat(row)} - {"unix_s", "elapsed_s", "interval_s"}
    charts = [chart for charts in hardware_charts(run).values() for chart in charts]
    assert sum(len(chart.lines) for chart in charts if chart.name != "gpu-throttling") == len(wanted)
    assert [len(chart.lines) for chart in charts if chart.name == "gpu-throttling"] == [2]


def test_many_cores_are_drawn_faintly_under_their_mean(tmp_path: Path) -> None:
    [run] = load_runs([write_full_run(tmp_path / "run", num_cores=32, num_samples=5)])
    [chart] = [chart for chart in hardware_charts(run)["Processor"] if chart.name == "core-busy"]
    assert [line.label for line in chart.lines if line.in_legend] == ["mean", "each of 32"]
    assert len(chart.lines) == 33


def test_nothing_in_the_page_leads_outside(full_page: Page, hostile_page: Page) -> None:
    for page in (full_page, hostile_page):
        for tag, attributes in outline(page).tags:
            assert tag not in {"img", "iframe", "object", "embed", "form", "base"}
            for name in ("src", "href", "xlink:href", "srcset", "action"):
                assert (attributes.get(name) or "#").startswith(("#", "data:,"))
            assert not any(name.startswith("on") for name in attributes)
    assert OUTSIDE.findall(own_markup(full_page)) == []
    assert "default-src 'none'" in full_page.html


def test_hostile_texts_are_shown_and_do_nothing(hostile_page: Page) -> None:
    found = outline(hostile_page)
    assert sum(tag == "script" and attributes == {} for tag, attributes in found.tags) == 2  # uPlot and our own
    assert "document.title='hacked'</script>" not in hostile_page.html
    assert len(HOSTILE) > 50
    assert hostile_page.html.encode()


def test_several_runs_are_compared_first_and_shown_folded(tmp_path: Path) -> None:
    runs = [write_full_run(tmp_path / name, algorithm=name, num_samples=30, num_gpus=1) for name in ("dqn", "ppo")]
    page = page_of(*runs)
    outline(page)
    assert headings(page)[:4] == ["2 runs compared", "Learning", "All runs", "Speed, hardware and cost"]
    assert "How utilisation relates to learning" in headings(page)
    assert page.html.count('<details class="run"') == 2
    names = {chart.name for owner, chart in page.charts if owner == "comparison"}
    assert {
        "return-steps", "return-minutes", "return-cpu-s", "return-gpu-s", "cpu-share-of-machine", "steps-per-s",
        "updates-per-s", "cpu-s-per-1000-steps", "gpu-utilisation-percent", "energy-j", "power-w", "cpu-s", "gpu-s",
    } <= names  # fmt: skip


def test_games_are_never_in_one_chart(tmp_path: Path) -> None:
    for env in ("CartPole-v1", "pong"):
        write_run(
            tmp_path / env,
            facts(env={"id": env}),
            metrics=[reading(10.0)],
            episodes=[episode(float(at_s), 1.0) for at_s in range(1, 9)],
        )
    page = page_of(tmp_path)
    assert {"Learning on CartPole-v1", "Learning on pong"} <= set(headings(page))
    assert all(len(chart_of(page, f"comparison-{place}", "return-steps").lines) == 1 for place in (0, 1))


def test_broken_run_gives_a_page_that_says_what_is_missing(tmp_path: Path) -> None:
    page = page_of(write_broken_run(tmp_path / "broken"))
    outline(page)
    assert headings(page)[1] == "What is missing"
    [notice] = re.findall(r'<aside class="notice missing">(.*?)</aside>', page.html, re.DOTALL)
    assert len(re.findall("<li>", notice)) >= 5


FILES = {
    "run.json": "run.json",
    "metrics.jsonl": "metrics.jsonl",
    "episodes.jsonl": "episodes.jsonl",
    "events.jsonl": "events.jsonl",
    "hardware.jsonl": "hardware.jsonl",
}


@pytest.mark.parametrize("file", FILES)
def test_page_is_made_without_any_one_file(tmp_path: Path, file: str) -> None:
    write_run(
        tmp_path,
        facts(),
        metrics=[reading(float(at_s)) for at_s in (1, 2, 3)],
        episodes=[episode(float(at_s), 1.0) for at_s in (1, 2, 3)],
        events=[event(0.0, "start"), event(3.0, "stop", reason="done")],
        hardware=[sample(float(at_s), cpu_cores_used=1.0) for at_s in (1, 2, 3)],
    )
    (tmp_path / file).unlink()
    page = page_of(tmp_path)
    outline(page)
    assert headings(page)[1] == "What is missing"
    assert FILES[file] in page.html


def test_largest_processes_are_named(tmp_path: Path) -> None:
    watched = [{"pid": 4321, "role": "learner", "name": "<python>", "cpu_cores_used": 1.5, "rss_bytes": 2e8}]
    page = page_of(write_run(tmp_path, hardware=[sample(1.0, watched=watched), sample(2.0, watched=watched)]))
    assert "Largest processes" in headings(page)
    [table] = re.findall(r'aria-label="Largest processes".*?</table>', page.html, re.DOTALL)
    cells = re.findall(r"<td.*?>(.*?)</td>", table)
    assert cells == ["4321", "learner", "&lt;python&gt;", "1.50", "200 MB"]


def test_recordings_without_a_game_are_compared_by_run(tmp_path: Path) -> None:
    for name, cores in (("one", 1.0), ("two", 2.0)):
        rows = [sample(float(at_s), cpu_cores_used=cores, cpu_s=cores * at_s) for at_s in range(1, 9)]
        write_run(tmp_path / name, hardware=rows)
    page = page_of(tmp_path)
    assert "Speed, hardware and cost" in headings(page)
    chart = chart_of(page, "comparison", "cpu-s")
    assert isinstance(chart, SpreadChart)
    assert [(row.label, row.values, row.low) for row in chart.rows] == [("one", (8.0,), None), ("two", (16.0,), None)]


def test_estimate_says_of_how_many_runs_it_is(tmp_path: Path) -> None:
    for place in range(3):
        played = [episode(float(at_s), at_s + place) for at_s in range(1, 9)] if place else []
        write_run(tmp_path / str(place), facts(seed=place), metrics=[reading(10.0), reading(20.0)], episodes=played)
    page = page_of(tmp_path)
    [table] = re.findall(r'aria-label="Scores".*?</table>', page.html, re.DOTALL)
    assert "<small>n = 2</small>" in table
    assert table.count("<small>n = ") == table.count("<small>n = 2</small>")
    assert "Runs by algorithm" not in page.html  # charts and scores show this grouping already


def test_power_is_over_the_samples_that_hold_it_and_spans_are_named(tmp_path: Path) -> None:
    for place in range(2):
        rows = [
            sample(float(at_s), cpu_cores_used=1.0, gpus=[{"index": 0, "power_w": 100.0}] if at_s <= 5 else [])
            for at_s in range(1, 21)
        ]
        readings = [reading(float(at_s)) for at_s in (5, 10, 20)]
        write_run(tmp_path / str(place), facts(seed=place), metrics=readings, hardware=rows)
    page = page_of(tmp_path)
    power, speed = (chart_of(page, "comparison", name) for name in ("power-w", "steps-per-s"))
    assert isinstance(power, SpreadChart)
    assert power.rows[0].values == pytest.approx((100.0, 100.0))
    assert speed.unit == "steps/s, while learning"


def test_speed_of_a_run_that_was_too_short_is_not_called_that_of_learning(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path, facts(), metrics=[reading(1.0)]))
    assert "<small>over the last 10 s</small>" in page.html
    assert "while learning" not in page.html


def test_one_headline_score_stands_in_tables_and_tiles(tmp_path: Path) -> None:
    rows = [episode(float(n), float(n)) for n in range(1, 151)]
    alone = write_run(tmp_path / "1", facts(), metrics=[reading(150.0)], episodes=rows)
    write_run(tmp_path / "2", facts(seed=2), metrics=[reading(150.0)], episodes=rows)
    assert "<dt>return</dt><dd>100<small>mean of the last 100 episodes</small>" in page_of(alone).html
    both = page_of(tmp_path).html
    [scores, each] = (
        re.findall(rf'aria-label="{name}".*?</table>', both, re.DOTALL)[0] for name in ("Scores", "All runs")
    )
    assert "<strong>100</strong>" in scores
    assert "newest evaluation" not in scores + each  # no run was evaluated
    assert each.count("<strong>100</strong><small>n = 100</small>") == 2


def test_runs_of_a_group_are_a_median_with_a_band(tmp_path: Path) -> None:
    for seed, factor in ((1, 1.0), (2, 2.0), (3, 6.0)):
        rows = [episode(float(n), factor * 10) for n in range(1, 31)]
        write_run(tmp_path / str(seed), facts(seed=seed), metrics=[reading(30.0)], episodes=rows)
    chart = chart_of(page_of(tmp_path), "comparison", "return-steps")
    assert isinstance(chart, LineChart)
    [line] = chart.lines
    assert (line.label, line.y[0], line.low[0], line.high[0]) == ("dqn, 3 runs", 20.0, 10.0, 60.0)


def test_runs_that_are_not_compared_are_named(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        row = reading(10.0, updates=0) if seed == 3 else reading(10.0)
        write_run(
            tmp_path / str(seed), facts(seed=seed), metrics=[row], episodes=[episode(5.0, 1.0), episode(9.0, 1.0)]
        )
    page = page_of(tmp_path)
    assert headings(page)[:2] == ["2 runs compared", "Not compared"]
    assert "<strong>dqn s3</strong><small>it made no updates</small>" in page.html
    assert page.html.count('<details class="run"') == 3


def test_what_scrolls_has_a_name(full_page: Page) -> None:
    for tag, attributes in outline(full_page).tags:
        if tag == "nav" or "scroll" in (attributes.get("class") or "").split():
            assert attributes["aria-label"]
