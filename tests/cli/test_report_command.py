"""`redline report` as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from redline.cli.main import BAD_INPUT, DONE, main
from redline.jsonl import RecordWriter

Output = pytest.CaptureFixture[str]

T0 = 1_700_000_000.0
FORBIDDEN = ("torch", "gymnasium", "ale_py", "matplotlib.pyplot")


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    with RecordWriter(path) as writer:
        for row in rows:
            writer.write(row)


def make_run(folder: Path, *, algorithm: str = "dqn", seed: int = 1) -> Path:
    """Write ten seconds of a run."""
    folder.mkdir(parents=True)
    config = {"env": {"id": "CartPole-v1"}, "seed": seed, "batch_size": 32, "learner": {"threads": 1}}
    host = {"cpu_model": "Abacus", "usable_cores": 2}
    run = {"schema": 1, "algorithm": algorithm, "config": config, "host": host, "created_unix_s": T0}
    (folder / "run.json").write_text(json.dumps(run))
    moments = [(float(at_s), T0 + at_s) for at_s in range(1, 11)]
    write_rows(
        folder / "metrics.jsonl",
        [
            {"time_s": at, "unix_s": unix, "steps": 100 * at, "updates": 25 * at, "steps_per_s": 100.0}
            for at, unix in moments
        ],
    )
    write_rows(
        folder / "episodes.jsonl",
        [
            {"time_s": at, "unix_s": unix, "steps": 100 * at, "role": "actor", "return": at, "lane": 0}
            for at, unix in moments
        ],
    )
    write_rows(
        folder / "hardware.jsonl",
        [
            {"unix_s": unix, "elapsed_s": at, "interval_s": 1.0, "cpu_cores_used": 1.5, "cpu_s": 1.5 * at}
            for at, unix in moments
        ],
    )
    write_rows(folder / "events.jsonl", [{"event": "start", "unix_s": T0, "time_s": 0.0, "steps": 0}])
    return folder


def report(capsys: Output, *args: object) -> dict[str, Any]:
    """Report and return the one object that is printed."""
    capsys.readouterr()
    assert main(["report", *map(str, args), "--json"]) == DONE
    out, err = capsys.readouterr()
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    return found


def test_page_is_written_and_everything_is_told(tmp_path: Path, capsys: Output) -> None:
    run, out = make_run(tmp_path / "run"), tmp_path / "page.html"
    found = report(capsys, run, "--out", out)
    assert out.read_text().startswith("<!doctype html>")
    assert found["bytes"] == out.stat().st_size
    assert (found["schema"], found["out"], found["png"], found["relation"]) == (1, str(out), [], None)
    [told] = found["runs"]
    assert (told["path"], told["algorithm"], told["steps"]) == (str(run), "dqn", 1_000)
    assert told["cpu_cores_used"] == pytest.approx(1.5)


def test_folder_of_runs_is_searched_and_compared(tmp_path: Path, capsys: Output) -> None:
    for name in ("dqn", "ppo"):
        make_run(tmp_path / "runs" / "cartpole" / name / "a", algorithm=name)
    found = report(capsys, tmp_path / "runs", "--out", tmp_path / "page.html")
    assert sorted(told["algorithm"] for told in found["runs"]) == ["dqn", "ppo"]
    assert found["relation"]["caveats"]
    assert "2 runs compared" in (tmp_path / "page.html").read_text()


def test_last_is_the_newest_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(Path("runs/pong/dqn/a"))
    run = make_run(Path("runs/pong/ppo/b"), algorithm="ppo")
    os.utime(run / "run.json", (T0 * 2, T0 * 2))  # begun later than the other
    assert main(["report", "last", "--json"]) == DONE
    assert [one["path"] for one in json.loads(capsys.readouterr().out)["runs"]] == [str(run)]


def test_score_is_the_mean_of_the_last_episodes_with_their_number(tmp_path: Path, capsys: Output) -> None:
    found = report(capsys, make_run(tmp_path / "run"), "--out", tmp_path / "page.html")
    [told] = found["runs"]
    assert (told["final_return"], told["final_return_episodes"]) == (5.5, 10)
    assert (told["evaluation_return"], told["evaluation_episodes"], told["evaluation_steps"]) == (None, 0, None)
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html"), "--plain"]) == DONE
    assert "5.5 (n = 10)" in capsys.readouterr().out


def test_one_seed_counts_once_and_the_other_run_is_named(tmp_path: Path, capsys: Output) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_run(tmp_path / "runs" / name, seed=seed)
    found = report(capsys, tmp_path / "runs", "--out", tmp_path / "page.html")
    assert len(found["runs"]) == 3
    [left_out] = found["relation"]["left_out"]
    assert left_out == {"label": "dqn s1 b", "why": "the same settings and seed as dqn s1 a"}
    [group] = [group for group in found["relation"]["groups"] if group["by"] == "algorithm"]
    assert group["labels"] == ["dqn s1 a", "dqn s2"]
    assert group["estimates"]["final_return"]["interval"] is None
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html"), "--plain"]) == DONE
    assert "dqn s1 b is not compared: the same settings and seed as dqn s1 a" in capsys.readouterr().out


def test_runs_and_flags_may_stand_in_any_order(tmp_path: Path, capsys: Output) -> None:
    one, other = make_run(tmp_path / "one"), make_run(tmp_path / "other", seed=2)
    found = report(capsys, one, "--out", tmp_path / "page.html", other)
    assert [told["path"] for told in found["runs"]] == [str(one), str(other)]


def test_runs_are_only_read(tmp_path: Path, capsys: Output) -> None:
    run = make_run(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    report(capsys, run, "--out", tmp_path / "page.html")
    assert {path: path.stat().st_mtime_ns for path in run.iterdir()} == before


def test_every_chart_becomes_a_picture(tmp_path: Path, capsys: Output) -> None:
    found = report(capsys, make_run(tmp_path / "run"), "--out", tmp_path / "page.html", "--png", tmp_path / "a" / "b")
    pictures = [Path(name) for name in found["png"]]
    assert len(pictures) == len(set(pictures)) == (tmp_path / "page.html").read_text().count("<figure")
    assert {"dqn-CartPole-v1-s1-return-steps.png", "dqn-CartPole-v1-s1-cores.png"} <= {path.name for path in pictures}
    with Image.open(pictures[0]) as picture:
        assert picture.size[0] == 860


def test_pictures_that_fail_leave_no_page(tmp_path: Path, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(900_000))
    page = tmp_path / "page.html"
    assert main(["report", str(make_run(tmp_path / "run")), "--out", str(page), "--png", str(small_disk / "png")]) == 2
    assert not page.exists()


def test_episodes_are_written_with_their_hardware(tmp_path: Path, capsys: Output) -> None:
    rows = tmp_path / "episodes.jsonl"
    found = report(capsys, make_run(tmp_path / "run"), "--out", tmp_path / "page.html", "--episodes", rows)
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    assert found["episodes"] == len(lines) == 10
    assert lines[4]["return"] == 5.0
    assert lines[4]["hardware"]["cpu_cores_used"] == pytest.approx(1.5)
    assert {line["run"] for line in lines} == {found["runs"][0]["label"]}


def test_plain_text_names_runs_problems_and_the_page(tmp_path: Path, capsys: Output) -> None:
    run = make_run(tmp_path / "run")
    (run / "events.jsonl").unlink()
    assert main(["report", str(run), "--out", str(tmp_path / "page.html"), "--plain"]) == DONE
    out = capsys.readouterr().out
    assert "dqn" in out.splitlines()[1]
    assert "events.jsonl" in out
    assert out.splitlines()[-1].endswith(f"kB: {tmp_path / 'page.html'}")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "report needs a run directory or a folder of runs"),
        (["{tmp}/nowhere"], "nowhere"),
        (["{tmp}/empty"], "empty"),
        (["{tmp}/run", "--out", "{tmp}/run/report.html"], "lies inside the run"),
        (["{tmp}/run", "--png", "{tmp}/run/png"], "lies inside the run"),
        (["{tmp}/run", "--out", "{tmp}"], "is a folder"),
        (["{tmp}/run", "--out", "{tmp}/no/such/page.html"], "use another --out"),
        (["{tmp}/run", "--out", "{tmp}/x", "--episodes", "{tmp}/x"], "are both"),
        (["{tmp}/run", "--out", "{tmp}/x", "--png", "{tmp}/empty/../x"], "use another --png"),
        (["{tmp}/run", "--out", "{tmp}/p", "--png", "{tmp}/x", "--episodes", "{tmp}/x"], "use another --episodes"),
        (["{tmp}/run", "--out", "{tmp}/x", "--png", "{tmp}/x/png"], "which --out makes a file: use another --png"),
        (["{tmp}/run", "--out", "{tmp}/p", "--episodes", "{tmp}"], "/episodes.jsonl"),
        (["{tmp}/run", "--out", "{tmp}/page.html", "--png", "{tmp}/run/run.json"], "lies inside the run"),
        (["{tmp}/run", "--out", "{tmp}/page.html", "--png", "{tmp}/file"], "is no folder"),
        (["{tmp}/run", "--ouf", "{tmp}/page.html"], "did you mean --out?"),
    ],
)
def test_bad_input_is_one_line_with_a_remedy(tmp_path: Path, capsys: Output, args: list[str], message: str) -> None:
    make_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    assert main(["report", *(arg.replace("{tmp}", str(tmp_path)) for arg in args)]) == BAD_INPUT
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("redline: ")
    assert err.count("\n") == 1
    assert message in err


def test_report_needs_neither_torch_nor_an_emulator(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    code = (
        "import sys\nfrom redline.cli.main import main\n"
        f"assert main(['report', {str(run)!r}, '--out', {str(tmp_path / 'page.html')!r}, '--plain']) == 0\n"
        f"print([name for name in {FORBIDDEN!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
