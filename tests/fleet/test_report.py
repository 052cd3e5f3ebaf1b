"""The report of a fleet: its numbers by hand, and what it says of one that is running, empty, damaged or hostile."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from full_runs import HOSTILE, write_broken_run
from made_fleets import add_run, end_lease, make_fleet, run_folder
from made_runs import T0

from redline.cli.main import BAD_INPUT, DONE, main
from redline.fleet.lease import Lease, Watcher
from redline.fleet.listing import Listing, Part, changed, make_slots, undone, write_listing
from redline.fleet.report import FleetReport, read_report
from redline.jsonl import encode_row
from redline.report.charts import LineChart
from redline.report.parts import Grid, Section
from redline.report.statistics import mean_interval

Output = pytest.CaptureFixture[str]


def slots_of(listing: Listing) -> dict[str, Any]:
    return {slot.name: slot for slot in listing.slots}


def told(capsys: Output, folder: Path, *args: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["fleet", "report", str(folder), *args, "--json"]) == DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def pages(report: FleetReport) -> tuple[str, str]:
    return report.html(unix_s=0.0), report.markdown(unix_s=0.0)


def charts_of(report: FleetReport) -> dict[str, LineChart]:
    sections = [part for part in report._parts() if isinstance(part, Section)]
    grids = [part for section in sections for part in section.parts if isinstance(part, Grid)]
    return {chart.name: chart for grid in grids for chart in grid.charts if isinstance(chart, LineChart)}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two games, of which one has no reference scores, with three seeds each."""
    folder = tmp_path / "fleet"
    listing = make_fleet(folder, ("pong", "CartPole-v1"), price=2.0)
    for place, slot in enumerate(listing.slots):
        value = {"pong": 10.0, "CartPole-v1": 100.0}[slot.game] + 2.0 * slot.seed
        add_run(
            folder, slot, [-20.0] * 20 + [value] * 120, greedy=[value + 1] * 2, begin_s=200.0 * place, seconds=360.0
        )
    return folder


def test_scores_and_aggregates_are_those_worked_by_hand(small: Path, capsys: Output) -> None:
    found = told(capsys, small)
    assert found["schema"] == 1
    assert found["counts"] == {"waiting": 0, "running": 0, "done": 6, "stopped": 0, "given up": 0}
    pong = found["scores"][0]
    low, high = mean_interval([12.0, 14.0, 16.0]) or (0, 0)
    assert (pong["game"], pong["kind"], pong["n"], pong["mean"]) == ("pong", "dqn", 3, 14.0)
    assert pong["interval"] == {"low": pytest.approx(low), "high": pytest.approx(high), "level": 0.9}
    assert pong["evaluations"] == [13.0, 15.0, 17.0]
    assert pong["human_normalised"] == pytest.approx([32.7 / 35.3, 34.7 / 35.3, 36.7 / 35.3])
    [overall] = found["overall"]
    assert (overall["algorithm"], overall["games"], overall["runs"]) == ("dqn", ["pong"], 3)
    assert overall["mean"]["value"] == pytest.approx(34.7 / 35.3)
    assert overall["IQM"]["interval"]["level"] == 0.95
    assert overall["optimality gap"]["value"] == pytest.approx((2.6 + 0.6 + 0.0) / 35.3 / 3)
    slot = found["slots"][0]
    assert (slot["slot"], slot["state"], slot["score"], slot["score_episodes"]) == ("pong-dqn-s1", "done", 12.0, 100)
    assert (slot["evaluation"], slot["evaluation_episodes"], slot["steps"]) == (13.0, 2, 36_000)
    assert (slot["hours"], slot["attempt"], slot["reason"]) == (0.1, 1, "max-minutes reached")


def test_page_and_markdown_hold_the_same_numbers(small: Path) -> None:
    html, markdown = pages(read_report(small))
    assert "| **pong** | **14** (10.6 … 17.4, n = 3) | 15 (n = 3) | -20.7 | 14.6 |".replace("-", "−") in markdown
    for text in ("10.6 … 17.4, n = 3", "6 of 6", "CartPole-v1", "max-minutes reached"):
        assert text in html
        assert text in markdown
    assert "Without reference scores, and so not in here: CartPole-v1." in html
    assert markdown.count("| line | steps |") == 2  # a table for each chart


def test_curves_have_a_band_over_seeds(small: Path) -> None:
    chart = charts_of(read_report(small))["return-steps-pong"]
    [line] = chart.lines
    assert (line.label, chart.title, len(line.low)) == ("dqn, 3 runs", "pong", len(line.x))
    assert (line.low[-1], line.y[-1], line.high[-1]) == (12.0, 14.0, 16.0)


def test_hours_are_of_the_clock_and_shared_ones_are_paid_once(small: Path, capsys: Output) -> None:
    cost = told(capsys, small)["cost"]
    # six runs of 360 s, one begun every 200 s: 0.6 h of runs in 1,360 s
    assert [row["hours"] for row in cost["rows"]] == [0.3, 0.3]
    assert (cost["total"]["run_hours"], cost["total"]["hours"], cost["total"]["cost"]) == (0.6, 0.378, 0.76)
    assert [row["cost"] for row in cost["rows"]] == [0.38, 0.38]
    assert told(capsys, small, "--price-per-hour", "4")["cost"]["total"]["cost"] == 1.51


def test_two_seeds_have_no_interval(tmp_path: Path, capsys: Output) -> None:
    listing = make_fleet(tmp_path / "fleet", seeds=(1, 2))
    for slot in listing.slots:
        add_run(tmp_path / "fleet", slot, [float(slot.seed)] * 5)
    found = told(capsys, tmp_path / "fleet")
    assert (found["scores"][0]["mean"], found["scores"][0]["interval"]) == (1.5, None)
    assert found["overall"][0]["median"]["interval"] is None
    assert found["overall"][0]["no_interval"] == "no interval: fewer than 3 runs of pong"


def test_runs_without_updates_and_equal_seeds_do_not_count(tmp_path: Path, capsys: Output) -> None:
    folder = tmp_path / "fleet"
    listing = make_fleet(folder)
    parts = [Part(("pong",), ("dqn",), (1, 2), {}), Part(("pong",), ("dqn",), (1, 3), {}, variant="again")]
    listing = Listing(listing.name, listing.wishes, (type(listing.versions[0])(make_slots(parts), T0, "start"),))
    write_listing(folder, listing)
    slots = slots_of(listing)
    add_run(folder, slots["pong-dqn-s1"], [1.0] * 4, seconds=100.0)
    add_run(folder, slots["pong-dqn-s2"], [2.0] * 4, updates=0)
    add_run(folder, slots["pong-dqn-again-s1"], [9.0] * 4, seconds=50.0)  # the same settings and seed, and shorter
    found = {slot["slot"]: slot for slot in told(capsys, folder)["slots"]}
    assert found["pong-dqn-s1"]["not_counted"] is None
    assert found["pong-dqn-s2"]["not_counted"] == "it made no updates"
    assert found["pong-dqn-again-s1"]["not_counted"] == "the same settings and seed as pong-dqn-s1"
    assert found["pong-dqn-again-s3"]["not_counted"] == "it has no run yet"
    html, _ = pages(read_report(folder))
    assert "<strong>pong-dqn-s2</strong><small>it made no updates</small>" in html


def test_fleet_that_has_not_begun_has_a_report(tmp_path: Path, capsys: Output) -> None:
    make_fleet(tmp_path / "fleet")
    assert main(["fleet", "report", str(tmp_path / "fleet"), "--baseline", "100", "--plain"]) == DONE
    assert capsys.readouterr().out.splitlines()[-1].startswith("report of ")
    html = (tmp_path / "fleet" / "report.html").read_text()
    for text in ("No run has a score yet.", "Nothing has been trained yet.", "3 waiting", "None on record."):
        assert text in html
        assert text in (tmp_path / "fleet" / "report.md").read_text()


def test_half_finished_fleet_says_what_is_missing(tmp_path: Path, capsys: Output) -> None:
    folder = tmp_path / "fleet"
    done, killed, _ = make_fleet(folder).slots
    add_run(folder, done, [5.0] * 20)
    add_run(folder, killed, [3.0] * 20, seconds=20.0, exit_code=2, reason="no such thing", attempt=4)
    found = told(capsys, folder)
    assert found["counts"] == {"waiting": 1, "running": 0, "done": 1, "stopped": 0, "given up": 1}
    assert (found["scores"][0]["n"], found["scores"][0]["slots"]) == (2, 3)
    report = read_report(folder)
    html, _ = pages(report)
    assert "<strong>pong-dqn-s2</strong><small>attempt 4: no such thing</small>" in html
    lines = charts_of(report)["return-steps-pong"].lines  # the short one does not cut the other
    assert [(line.label, line.x[-1]) for line in lines] == [
        ("dqn, seed 1, done", 10_000),
        ("dqn, seed 2, given up", 2_000),
    ]


def test_report_of_a_running_fleet_counts_what_is_there(tmp_path: Path, capsys: Output) -> None:
    folder = tmp_path / "fleet"
    done, running, _ = make_fleet(folder).slots
    add_run(folder, done, [5.0] * 20)
    add_run(folder, running, [7.0] * 20, seconds=60.0)
    where = str(run_folder(folder, running).relative_to(folder))
    with Lease.take(folder, running.name, watcher=Watcher(folder), run=where):
        found = told(capsys, folder)
    assert [slot["state"] for slot in found["slots"]] == ["done", "running", "waiting"]
    assert [slot["score"] for slot in found["slots"]] == [5.0, 7.0, None]
    assert (found["scores"][0]["mean"], found["scores"][0]["n"]) == (6.0, 2)
    assert found["slots"][2]["not_counted"] == "it has no run yet"
    assert "1 waiting, 1 running, 1 done" in (folder / "report.md").read_text()


def test_damaged_files_cost_what_they_held(tmp_path: Path, capsys: Output) -> None:
    folder = tmp_path / "fleet"
    whole, broken, empty = make_fleet(folder).slots
    add_run(folder, whole, [5.0] * 20)
    end_lease(folder, broken, write_broken_run(run_folder(folder, broken)))
    run_folder(folder, empty).mkdir(parents=True)
    (folder / "slots.jsonl").write_text('not JSON\n{"slot": 7, "state": [], "packing": 3}\n{"torn"')
    (folder / "health.jsonl").write_text('{"row": "incident", "message": 5, "unix_s": NaN}\n[]\n')
    found = told(capsys, folder)
    assert [slot["not_counted"] for slot in found["slots"]] == [None, "its run can't be read", "its run can't be read"]
    assert found["problems"] == [
        "slots.jsonl: lines left out because they can't be read: 1",
        "health.jsonl: lines left out because they can't be read: 1",
    ]
    assert len(found["incidents"]) == 1
    html, _ = pages(read_report(folder))
    assert "<strong>pong-dqn-s2</strong><small>" in html


def test_run_of_another_slot_is_not_taken_for_its_own(tmp_path: Path, capsys: Output) -> None:
    folder = tmp_path / "fleet"
    first, second, third = make_fleet(folder).slots
    run = add_run(folder, first, [5.0] * 20)
    end_lease(folder, second, run)
    home = run_folder(folder, third)
    home.parent.mkdir(parents=True)
    home.symlink_to(run)
    end_lease(folder, third, home)
    assert [slot["score"] for slot in told(capsys, folder)["slots"]] == [5.0, None, None]


def test_no_text_of_a_file_becomes_markup(tmp_path: Path, capsys: Output) -> None:
    folder = tmp_path / "fleet"
    make_fleet(folder)
    hostile = HOSTILE.replace(":", "")
    parts = [Part((hostile,), (hostile,), (1,), {"note": f"{hostile}|x"}, variant="v")]
    listing = make_fleet(folder)
    version = type(listing.versions[0])(make_slots(parts), T0, HOSTILE)
    listing = changed(Listing("made", listing.wishes, (version,)), [], {"other": hostile}, HOSTILE)
    write_listing(folder, listing)
    for version in listing.versions:
        add_run(folder, version.slots[0], [1.0] * 4, reason=HOSTILE, exit_code=2)
    row = {"row": "incident", "unix_s": T0, "kind": HOSTILE, "slot": HOSTILE, "message": HOSTILE, "remedy": HOSTILE}
    (folder / "health.jsonl").write_bytes(encode_row(row))
    packing = {"packing": {"concurrency": 1, "threads": 1, "why": HOSTILE}}
    turn = {"slot": HOSTILE, "state": HOSTILE, "unix_s": T0, "reason": HOSTILE, "host": HOSTILE}
    (folder / "slots.jsonl").write_bytes(encode_row(packing) + encode_row(turn))
    html, markdown = pages(read_report(folder))
    for text in (html, markdown):
        assert "<img src=x" not in text
        assert "<script>document" not in text
        assert "&lt;img src=x" in text
    assert "<" not in markdown
    assert main(["fleet", "report", str(folder), "--plain"]) == DONE
    assert "\x1b" not in capsys.readouterr().out


def test_incident_that_lasts_is_told_with_its_end(tmp_path: Path, capsys: Output) -> None:
    folder = tmp_path / "fleet"
    make_fleet(folder)
    disk = {"row": "incident", "kind": "disk", "slot": "", "attempt": 0, "message": "0.1 MB free", "lasts": True}
    rows = [
        {"row": "sample", "unix_s": T0, "supervisor_cpu_s": 5.0, "supervisor_rss_bytes": 7e7},
        {**disk, "unix_s": T0 + 1},
        {"row": "over", "unix_s": T0 + 31, "kind": "disk", "slot": "", "attempt": 0},
        {**disk, "unix_s": T0 + 40},
        {"row": "incident", "unix_s": T0 + 50, "kind": "crash", "slot": "pong-dqn-s1", "message": "killed"},
        {"row": "sample", "unix_s": T0 + 60, "supervisor_cpu_s": 5.3, "supervisor_rss_bytes": 8e7},
        {"row": "sample", "unix_s": T0 + 90, "supervisor_cpu_s": 0.3, "supervisor_rss_bytes": 6e7},  # started again
        {"row": "sample", "unix_s": T0 + 120, "supervisor_cpu_s": 0.6, "supervisor_rss_bytes": 6e7},
    ]
    (folder / "health.jsonl").write_bytes(b"".join(map(encode_row, rows)))
    found = told(capsys, folder)
    assert [(row["kind"], row["lasts"], row["over_unix_s"]) for row in found["incidents"]] == [
        ("disk", True, T0 + 31),
        ("disk", True, None),
        ("crash", False, None),
    ]
    assert found["supervisor"] == {"core_share": pytest.approx(0.6 / 90), "rss_bytes": 8e7}
    html, _ = pages(read_report(folder))
    assert html.count("<small>over at ") == html.count("<small>not over when") == 1
    assert "the supervisor took 0.7 % of a core and at most 80 MB" in html


# Changes of the list


@pytest.fixture
def changing(tmp_path: Path) -> Path:
    """Half of a fleet has a new batch size, is compared, and the change is undone."""
    folder = tmp_path / "fleet"
    listing = make_fleet(folder, ("pong", "breakout"))
    for slot in listing.slots:
        add_run(folder, slot, [1.0] * 50 + [float(slot.seed)] * 50 + [50.0] * 100, seconds=200.0)
    listing = changed(listing, ["breakout"], {"batch-size": 64}, "redline fleet change --only breakout")
    for slot in listing.slots:
        if slot.game == "breakout":
            values = [4.0 + slot.seed] * 100
            add_run(folder, slot, values, seconds=100.0, config={"batch_size": 64}, exit_code=75, is_stopped=True)
    write_listing(folder, undone(listing, "redline fleet change --undo"))
    return folder


def test_change_is_compared_at_the_steps_that_both_sides_have(changing: Path, capsys: Output) -> None:
    found = told(capsys, changing)
    change, undo = found["changes"]
    assert (change["version"], change["settings"], change["new_slots"]) == (2, ["batch-size: usual → 64"], 3)
    [game] = change["games"]
    assert (game["game"], game["old_kind"], game["new_kind"], game["steps"]) == ("breakout", "dqn", "dqn v2", 10_000)
    # at 10,000 steps the old runs have 50 episodes of 1 and 50 of their seed, the new ones 4 + seed
    assert game["old"] == [1.0, 1.5, 2.0]
    assert game["new"] == [5.0, 6.0, 7.0]
    assert game["difference"] == 4.5
    # variances ¼ and 1 of three values each: error √(1/12 + 1/3), 25/8.5 = 2.94 degrees of freedom
    half = 2.3727 * (5 / 12) ** 0.5
    assert game["interval"]["low"] == pytest.approx(4.5 - half, abs=0.001)
    assert change["human_normalised"]["value"] == pytest.approx(4.5 / 28.8)
    assert (undo["new_slots"], undo["games"]) == (0, [])
    assert [slot["slot"] for slot in found["slots"] if not slot["is_listed"]] == [
        f"breakout-dqn-s{seed}.v2" for seed in (1, 2, 3)
    ]
    assert [(score["game"], score["kind"]) for score in found["scores"]] == [
        ("pong", "dqn"),
        ("breakout", "dqn"),
        ("breakout", "dqn v2"),
    ]


def test_page_tells_every_version(changing: Path) -> None:
    for text in pages(read_report(changing)):
        assert "Changes of the list" in text
        assert "3 slots: batch-size: usual → 64" in text
        assert "undone: the slots of version 1 again" in text
        assert "+4.50" in text


# The command


def test_out_and_baseline_are_checked_before_anything_is_written(small: Path, tmp_path: Path, capsys: Output) -> None:
    bad = {
        ("--out", str(tmp_path / "page.txt")): "use a name that ends in .html",
        ("--out", str(small / "runs" / "page.html")): "lies among the fleet's runs",
        ("--unit", "episodes"): "--unit does nothing here",
        ("--unit", "laps", "--baseline", "3"): "--unit is 'laps': use episodes or steps or frames",
        ("--baseline", "nowhere"): "nowhere holds no run",
        ("--baseline", "0"): "use a number above 0",
        ("--price-per-hour", "-1"): "use a number of 0 or more",
    }
    for args, message in bad.items():
        assert main(["fleet", "report", str(small), *args]) == BAD_INPUT
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert main(["fleet", "report", str(tmp_path)]) == BAD_INPUT
    assert not (small / "report.html").exists()


def test_page_goes_where_it_is_asked_for(small: Path, tmp_path: Path, capsys: Output) -> None:
    found = told(capsys, small, "--out", str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").stat().st_size == found["bytes"]
    assert (tmp_path / "page.md").is_file()
    assert not (small / "report.html").exists()


def test_link_in_place_of_the_page_is_not_followed(small: Path, tmp_path: Path, capsys: Output) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (small / "report.html").symlink_to(target)
    assert main(["fleet", "report", str(small)]) == BAD_INPUT
    assert target.read_text() == "mine"


def test_fleet_is_compared_with_an_earlier_one(small: Path, tmp_path: Path, capsys: Output) -> None:
    before = tmp_path / "before"
    for place, slot in enumerate(make_fleet(before, seeds=(1,)).slots):
        path = add_run(before, slot, [1.0] * 10, seconds=100.0, begin_s=200.0 * place)
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        slower = [row | {"steps": row["steps"] // 2} for row in rows]
        (path / "metrics.jsonl").write_bytes(b"".join(map(encode_row, slower)))
    cost = told(capsys, small, "--baseline", str(before))["cost"]
    assert [row["hours"] for row in cost["baseline"]["rows"]] == [0.6, 0.6]  # half as fast, one after the other
    assert cost["saved"]["ratio"] == 3.2
    assert "CartPole-v1 has no run: it trains as fast as pong, and its episodes are as long" in cost["assumptions"]


def test_price_of_the_list_is_exact(small: Path) -> None:
    cost = read_report(small).cost
    assert cost is not None
    assert cost.after.bill.price_per_hour == Decimal("2.0")


def test_runs_of_a_fleet_have_pages_of_their_own(small: Path, tmp_path: Path, capsys: Output) -> None:
    assert main(["report", str(small), "--out", str(tmp_path / "runs.html"), "--json"]) == DONE
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 6
