"""`redline watch` tells of a run that another process writes, and leaves it alone."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from redline.cli.displays import render_line
from redline.cli.main import DONE, main
from redline.cli.watch import WORDS, describe_event, moment
from redline.jsonl import encode_row
from redline.runs.directory import RunDirectory
from redline.runs.locating import FollowedRun
from redline.runtime.gauges import Gauges

Output = pytest.CaptureFixture[str]

OPTIONAL = {name: None for name, field in Gauges.__dataclass_fields__.items() if "None" in str(field.type)}
NUMBERS = {name: 1 for name in Gauges.__dataclass_fields__ if name not in OPTIONAL and name != "roles"}
OLD_READING = {**NUMBERS, "steps": 1_234, "unix_s": 1.8e9}  # without all that newer versions write
READING: dict[str, Any] = {**OPTIONAL, **OLD_READING, "roles": []}
SAMPLE = {
    "unix_s": 1.8e9,
    "interval_s": 1.0,
    "cpu_cores_used": 1.87,
    "machine_cpu_cores_used": 1.93,
    "core_busy": [0.97, 0.91],
    "rss_bytes": 1_100_000_000,
    "memory_available_bytes": 5_200_000_000,
    "write_bytes_per_s": 12_000,
    "disk_free_bytes": 123_000_000_000,
    "roles": {"main": {"cpu_cores_used": 1.5, "rss_bytes": 9e8}, "other": {"cpu_cores_used": 0.37, "rss_bytes": 2e8}},
    "gpus": [
        {"index": 1, "name": "Card [/X]", "utilisation_percent": 87, "power_w": 230.4, "throttle_reasons": ["hot"]},
        {"index": 2, "memory_used_bytes": 1e9, "memory_total_bytes": 4e9},
    ],
}


def write(path: Path, *rows: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(encode_row(row) for row in rows))


def event(name: str, **details: Any) -> dict[str, Any]:
    return {"event": name, "unix_s": 1.8e9, "time_s": 0.0, "steps": 0, **details}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    """A run of this process, which has begun."""
    directory = RunDirectory.create(tmp_path / "runs", game="pong", algorithm="dqn", seed=1)
    directory.write_run_json({"algorithm": "dqn", "config": {"seed": 1, "env": {"id": "pong"}}})
    directory.events.write(event("start", protocol="as ever"))
    yield directory
    directory.close()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """What `redline monitor` leaves of foreign code while it watches it."""
    folder = tmp_path / "out"
    folder.mkdir()
    write(folder / "events.jsonl", event("monitor-start", pid=4711, hz=1.0, cores=2, command=["python", "train.py"]))
    write(folder / "hardware.jsonl", SAMPLE)
    return folder


def as_json(path: Path, capsys: Output) -> dict[str, Any]:
    assert main(["watch", str(path), "--json"]) == DONE
    told: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    return told


def as_lines(path: Path, capsys: Output) -> list[str]:
    assert main(["watch", str(path), "--plain"]) == DONE
    return capsys.readouterr().out.splitlines()


def silence(folder: Path, seconds: float) -> None:
    for path in folder.iterdir():
        os.utime(path, (time.time() - seconds,) * 2)


def test_a_run_that_has_not_written_anything_yet_is_running(tmp_path: Path, capsys: Output) -> None:
    with RunDirectory.create(tmp_path, game="pong", algorithm="dqn", seed=1) as directory:
        told = as_json(directory.path, capsys)
    assert (told["state"], told["kind"], told["reading"], told["hardware"]) == ("running", "run", None, None)


def test_one_object_has_the_newest_reading_and_sample(run: RunDirectory, capsys: Output) -> None:
    run.metrics.write(READING)
    run.metrics.write({**READING, "steps": 5_678})
    write(run.path / "hardware.jsonl", {**SAMPLE, "pss_bytes": 800}, {**SAMPLE, "cpu_cores_used": 0.5})
    told = as_json(run.path, capsys)
    assert (told["state"], told["how"], told["pss_bytes"]) == ("running", "", 800)
    assert (told["reading"]["steps"], told["hardware"]["cpu_cores_used"]) == (5_678, 0.5)
    assert told["event"]["event"] == "start"


def test_a_run_that_ended_tells_how_and_when(run: RunDirectory, capsys: Output) -> None:
    run.metrics.write(READING)
    run.events.write(event("stop", reason="max-steps 1,234 reached"))
    assert as_json(run.path, capsys)["state"] == "running"  # it still writes its last checkpoint
    run.close()
    told = as_json(run.path, capsys)
    assert (told["state"], told["how"], told["unix_s"]) == ("stopped", "max-steps 1,234 reached", 1.8e9)
    lines = as_lines(run.path, capsys)
    assert lines[0] == f"redline watch · dqn on pong · seed 1 · {run.path}"
    assert "started: as ever" in lines[1]
    assert lines[-2] == render_line(Gauges.from_row(READING))
    assert lines[-1].startswith(f"stopped {moment(1.8e9)}")
    assert lines[-1].endswith(": max-steps 1,234 reached")


def test_a_run_that_failed_tells_why(run: RunDirectory, capsys: Output) -> None:
    run.events.write(event("error", message="the loss is NaN"))
    run.close()
    told = as_json(run.path, capsys)
    assert (told["state"], told["how"]) == ("stopped", "error: the loss is NaN")


def test_a_run_whose_process_is_gone_without_a_word_was_killed(run: RunDirectory, capsys: Output) -> None:
    run.metrics.write(READING)
    lock = run.path / "run.lock"
    lock.write_text(json.dumps({**json.loads(lock.read_bytes()), "process_start_unix_s": 0}))  # another has its number
    told = as_json(run.path, capsys)
    assert (told["state"], told["unix_s"]) == ("killed", 1.8e9)
    assert as_lines(run.path, capsys)[-1].startswith("killed, last heard of 20")


def test_a_run_that_was_resumed_after_a_stop_and_then_killed_was_killed(run: RunDirectory, capsys: Output) -> None:
    run.events.write(event("stop", reason="SIGTERM"))
    run.events.write(event("resume", checkpoint="0"))
    run.close()
    assert as_json(run.path, capsys)["state"] == "killed"


def test_a_run_on_another_host_goes_on_as_long_as_it_writes(run: RunDirectory, capsys: Output) -> None:
    lock = run.path / "run.lock"
    lock.write_text(json.dumps({**json.loads(lock.read_bytes()), "host": "elsewhere"}))
    assert as_json(run.path, capsys)["state"] == "running"
    silence(run.path, 3_600.0)
    assert as_json(run.path, capsys)["state"] == "killed"


def test_a_resume_that_cuts_the_records_is_followed(run: RunDirectory) -> None:
    for steps in (100, 200, 300):
        run.metrics.write({**READING, "steps": steps})
    followed = FollowedRun(run.path)
    followed.refresh()
    run.cut_records(100)
    run.metrics.write({**READING, "steps": 150})
    followed.refresh()
    assert followed.metrics is not None
    assert followed.metrics["steps"] == 150


@pytest.mark.parametrize("rubbish", [b'{"steps":', b"\x00\xff\n", b"[1]\n", b'{"steps":"many"}\n', b"{}\n"])
def test_what_cannot_be_read_is_passed_over(run: RunDirectory, rubbish: bytes, capsys: Output) -> None:
    for name in ("metrics", "events", "hardware"):
        with (run.path / f"{name}.jsonl").open("ab") as file:
            file.write(rubbish)
    run.close()
    assert as_lines(run.path, capsys)[-1].startswith("killed")


def test_rows_of_an_older_version_are_shown(run: RunDirectory, capsys: Output) -> None:
    run.metrics.write(OLD_READING)
    run.close()
    assert "1,234 steps" in as_lines(run.path, capsys)[-2]


@pytest.mark.parametrize(
    "text",
    [
        "cores: watched processes 1.87 of 2 cores · all processes 1.93 · each 97% 91%",
        "memory: 1.10 GB resident · 812.00 MB PSS · 5.20 GB available",
        "disk: 12.00 kB/s written · 123.00 GB free",
        "main: 1.50 cores · 900.00 MB",
        "GPU 1: Card [/X] · 87 % busy · 230 W · slowed by hot",
        "GPU 2: 1.00 GB of 4.00 GB",
    ],
)
def test_a_recording_of_foreign_code_shows_its_hardware(recording: Path, text: str, capsys: Output) -> None:
    write(recording / "hardware.jsonl", {**SAMPLE, "pss_bytes": 812e6}, SAMPLE)
    write(recording / "events.jsonl", event("monitor-stop", reason="the watched process ended", exit_code=3))
    lines = as_lines(recording, capsys)
    assert text in lines[-2].split(" | ")
    assert lines[-1].endswith(": the watched process ended, exit code 3")


def test_a_recording_goes_on_as_long_as_it_writes(recording: Path, capsys: Output) -> None:
    told = as_json(recording, capsys)
    assert (told["state"], told["kind"]) == ("running", "recording")
    silence(recording, 60.0)
    assert as_json(recording, capsys)["state"] == "killed"


def test_of_a_folder_the_run_that_was_started_last_is_shown(run: RunDirectory, recording: Path, capsys: Output) -> None:
    folder = recording.parent
    os.utime(run.path / "run.json", (1.0, 1.0))
    assert as_json(folder, capsys)["run"] == str(recording)
    os.utime(recording, (0.0, 0.0))
    assert as_json(folder, capsys)["run"] == str(run.path)


def test_what_files_say_cannot_drive_the_terminal(run: RunDirectory, capsys: Output) -> None:
    run.events.write(event("warning", message="\x1b[2J\r[bold]gone"))
    run.close()
    output = "\n".join(as_lines(run.path, capsys))
    assert "warning:  [2J [bold]gone" in output
    assert "\x1b" not in output


def test_names_in_a_reading_cannot_drive_the_terminal(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    role = {"role": "\x1b[31mred\n", "waiting": {"\x1b[2Jx": 0.9, "[/x]": 0.5}}
    run.metrics.write({**READING, "roles": [role, role]})
    run.close()
    assert " [31mred  waits for  [2Jx 90 %, [/x] 50 %" in as_lines(run.path, capsys)[-2]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["watch", str(run.path)]) == DONE
    output = capsys.readouterr().out
    assert "[2Jx 90 %" in output
    assert "\x1b[2J" not in output
    assert "\x1b[31mred" not in output


MONITOR_STOP = {"reason": "x", "samples": 1, "elapsed_s": 1, "monitor_cpu_share": 0.1}
DEEP = json.loads("[" * 900 + "]" * 900)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1" + "0" * 400, '"text"', "[]", "{}"])
@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("hardware", {**SAMPLE, "pss_bytes": "@"}),
        ("hardware", {**SAMPLE, "unix_s": "@", "interval_s": "@"}),
        ("hardware", {**SAMPLE, "gpus": [{"index": "@", "name": "@", "power_w": "@"}], "roles": "@"}),
        ("events", event("monitor-start", pid="@", hz="@")),
        ("events", event("monitor-stop", **{**MONITOR_STOP, "unix_s": "@"})),
        ("events", event("monitor-stop", **{**MONITOR_STOP, "elapsed_s": "@", "samples": "@", "exit_code": "@"})),
        ("metrics", {**READING, "time_s": "@"}),
        ("metrics", {**READING, "loss": "@", "remaining_s": "@", "progress": "@"}),
        ("metrics", {**READING, "roles": [{"role": "@", "waiting": "@"}]}),
        ("metrics", {**READING, "roles": [{"role": "a", "waiting": {"envs": "@"}}] * 2}),
    ],
)
def test_whatever_number_a_row_holds_all_is_told(
    recording: Path, name: str, row: dict[str, Any], number: str, capsys: Output
) -> None:
    with (recording / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(row).replace('"@"', number) + "\n")
    silence(recording, 3_600.0)
    assert as_json(recording, capsys)["state"] in ("stopped", "killed")
    assert as_lines(recording, capsys)[-1].startswith(("stopped", "killed"))


@pytest.mark.parametrize("name", [*WORDS, "unheard-of"])
@pytest.mark.parametrize("value", [None, "text", [1], {}, float("inf"), float("nan"), 10**400, DEEP])
def test_whatever_an_event_holds_it_is_described(name: str, value: object) -> None:
    keys = (
        "unix_s number weights_steps mean_return min_return max_return episodes monitor_cpu_share samples elapsed_s hz"
    )
    keys += " protocol role pid why path stalled_s checkpoint message reason gpu"
    assert describe_event(dict.fromkeys(keys.split(), value) | {"event": name}).isprintable()


def test_events_that_are_a_pipe_or_many_gigabytes_are_not_waited_for(recording: Path, capsys: Output) -> None:
    events = recording / "events.jsonl"
    with events.open("ab") as file:
        file.truncate(30 << 30)  # takes no room
    assert as_json(recording, capsys)["event"] is None
    events.unlink()
    os.mkfifo(events)
    assert as_json(recording, capsys)["hardware"]["cpu_cores_used"] == 1.87


@pytest.mark.parametrize("holder", [{"pid": -1}, {"pid": 10**400}, {"process_start_unix_s": 10**400}])
def test_a_lock_that_names_no_process_holds_nothing(run: RunDirectory, holder: dict[str, Any], capsys: Output) -> None:
    lock = run.path / "run.lock"
    lock.write_text(json.dumps({**json.loads(lock.read_bytes()), **holder}))
    assert as_json(run.path, capsys)["state"] == "killed"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "watch needs a run directory"),
        (["--plain"], "watch needs a run directory"),
        (["nowhere"], "nowhere is no folder"),
        (["."], "holds no run and no recording"),
        ([".", "--hz", "3"], "--hz"),
    ],
)
def test_bad_input_is_said_in_one_line(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(["watch", *args], message)


def test_watching_writes_nothing_and_takes_no_lock(run: RunDirectory, capsys: Output) -> None:
    run.metrics.write(READING)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.path.iterdir()}
    as_json(run.path, capsys)
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.path.iterdir()} == before
    run.close()
    as_json(run.path, capsys)
    RunDirectory.open(run.path).close()


def test_torch_is_not_loaded() -> None:
    code = (
        "import sys, redline.cli.watch; sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'gymnasium')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ctrl_c_leaves_at_once(run: RunDirectory, start_program: Callable[..., "subprocess.Popen[str]"]) -> None:
    run.metrics.write(READING)
    with start_program("watch", run.path, "--plain") as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline().startswith("redline watch")
        assert "started" in watcher.stdout.readline()
        assert "1,234 steps" in watcher.stdout.readline()
        run.events.write(event("adjustment", message="less"))
        assert "requested → effective: less" in watcher.stdout.readline()
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(timeout=10) == DONE
        assert watcher.stderr is not None
        assert watcher.stderr.read() == ""


def test_the_panel_shows_reading_and_hardware(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    run.metrics.write(READING)
    write(run.path / "hardware.jsonl", SAMPLE)
    run.events.write(event("stop", reason="enough"))
    run.close()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["watch", str(run.path)]) == DONE
    output = capsys.readouterr().out
    for text in ("1,234 steps", "1.87 of 2 cores", "Card [/X]", "stopped 20", ": enough"):
        assert text in output
    assert "available" not in output  # the reading has told it


def test_the_panel_of_a_recording_shows_hardware(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    write(recording / "events.jsonl", event("monitor-stop", reason="enough"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["watch", str(recording)]) == DONE
    output = capsys.readouterr().out
    for text in ("1.87 of 2 cores", "main", "GPU 2", ": enough"):
        assert text in output
