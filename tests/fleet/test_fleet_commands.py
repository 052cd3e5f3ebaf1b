"""`redline fleet …` as somebody types it: one object, one line, exit codes, schedules, changes, Ctrl-C."""

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from quick_fleets import QuickEngine, Zygote, begun, kill, make_fleet, wait_until_running

from redline.cli.fleet import checking, supervising
from redline.cli.main import BAD_INPUT, DONE, FAILED, RESUMABLE, main
from redline.errors import UserError
from redline.fleet.health import HEALTH_JSONL
from redline.fleet.listing import Slot, read_listing
from redline.fleet.slots import STATES
from redline.jsonl import RecordWriter

Output = pytest.CaptureFixture[str]
Refused = Callable[[Sequence[str], str], None]
START = ("fleet", "start", "--games", "CartPole-v1", "--model", "ppo,a2c", "--seeds", "1-2", "--max-steps", "500")
QUICK = ("--concurrency", "4", "--stagger-s", "0")


@pytest.fixture
def quick_engine(zygote: Zygote, quick: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the runs of a fleet be a few rows, and its report nothing."""
    monkeypatch.setattr(supervising, "open_engine", lambda folder, _: QuickEngine(folder, zygote))
    monkeypatch.setattr(supervising, "write_report", lambda _: "a report")
    monkeypatch.chdir(tmp_path)


def tell(capsys: Output, *args: object, code: int = DONE) -> dict[str, Any]:
    """Run a command with --json, and return the one object that it prints."""
    capsys.readouterr()
    assert main([str(arg) for arg in (*args, "--json")]) == code
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.usefixtures("quick_engine")
def test_start_status_and_start_again(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    real = supervising.read_listing

    def with_plans(folder: Path) -> Any:
        (folder / "plan.json").write_text("{}")  # every run is done at once
        return real(folder)

    monkeypatch.setattr(supervising, "read_listing", with_plans)
    found = tell(capsys, *START, *QUICK)
    folder = Path("fleets/cartpole-v1-ppo-a2c")
    assert found["schema"] == 1
    assert set(found) == {"schema", "slots", "counts", "health", "stopped"}
    assert found["counts"] == {**dict.fromkeys(STATES, 0), "done": 4}
    assert set(found["slots"][0]) == {
        *(
            "slot",
            "game",
            "algorithm",
            "seed",
            "state",
            "attempt",
            "run",
            "steps",
            "mean_return_100",
            "reason",
        )
    }
    status = tell(capsys, "fleet", "status", folder)
    assert status["slots"] == found["slots"]
    assert tell(capsys, *START, *QUICK)["slots"] == found["slots"]  # goes on: nothing is left to do
    assert len(begun(folder)) == 4
    assert main([*START, "--lr", "0.1"]) == BAD_INPUT
    assert "is a fleet with another list: use another --dir" in capsys.readouterr().err
    assert main(["fleet", "status", str(folder)]) == DONE
    assert capsys.readouterr().out.splitlines()[-1] == "4 done"


def test_status_shows_the_newest_incidents(tmp_path: Path, capsys: Output) -> None:
    make_fleet(tmp_path, {"a": ["done"]})
    with RecordWriter(tmp_path / HEALTH_JSONL) as writer:
        for number in range(7):
            writer.write({"row": "incident", "kind": "leak", "slot": "a", "message": f"leak {number}", "unix_s": 1e300})
    assert main(["fleet", "status", str(tmp_path)]) == DONE
    lines = capsys.readouterr().out.splitlines()
    assert lines[-6] == "7 incidents, the newest:"
    assert [line.rpartition("  ")[2] for line in lines[-5:]] == [f"a: leak {number}" for number in range(2, 7)]


@pytest.mark.usefixtures("quick_engine")
def test_ctrl_c_saves_all_runs_and_a_resume_ends_them(
    tmp_path: Path, capsys: Output, main_beside: Callable[..., int]
) -> None:
    make_fleet(tmp_path / "fleet", {"long": ["endless", "done"]})

    def press(send: Callable[[signal.Signals], None]) -> None:
        wait_until_running(tmp_path / "fleet", "long-ppo-s1", steps=3)
        send(signal.SIGINT)

    assert main_beside(press, ["fleet", "resume", "fleet", "--plain"]) == RESUMABLE
    assert "stopped: SIGINT; continue with: redline fleet resume fleet" in capsys.readouterr().out
    assert tell(capsys, "fleet", "status", "fleet")["counts"]["stopped"] == 1
    assert tell(capsys, "fleet", "resume", "fleet")["counts"]["done"] == 1
    first, second = begun(tmp_path / "fleet")
    assert first["steps"] == 0
    assert second["steps"] > 0


@pytest.mark.usefixtures("quick_engine")
def test_stop_ends_supervisor_and_runs_wherever_they_are(tmp_path: Path, capsys: Output, zygote: Zygote) -> None:
    make_fleet(tmp_path / "fleet", {"a": ["endless", "done"], "b": ["endless", "done"]})
    pid = zygote.ask(supervise=str(tmp_path / "fleet"))
    for name in "ab":
        wait_until_running(tmp_path / "fleet", f"{name}-ppo-s1", steps=3)
    assert main(["fleet", "resume", "fleet"]) == FAILED
    assert f"fleet is supervised already: by process {pid}" in capsys.readouterr().err
    assert main(["fleet", "resume", "fleet", "--concurrency", "1"]) == FAILED
    assert read_listing(tmp_path / "fleet").wishes.concurrency == 8
    kill(pid)  # the zygote's supervisor has no handler for a stop: the runs are asked one by one
    assert tell(capsys, "fleet", "stop", "fleet")["counts"]["stopped"] == 2
    assert tell(capsys, "fleet", "stop", "fleet")["counts"]["stopped"] == 2


@pytest.mark.usefixtures("quick_engine")
def test_runs_that_are_given_up_give_exit_code_1(tmp_path: Path, capsys: Output) -> None:
    make_fleet(tmp_path / "fleet", {"bad": ["bad", "done"]})
    assert main(["fleet", "resume", "fleet", "--plain"]) == FAILED
    assert "try those again with: redline fleet resume fleet --retry" in capsys.readouterr().out
    assert main(["fleet", "resume", "fleet", "--retry", "--plain"]) == DONE


@pytest.mark.usefixtures("elsewhere_here")
def test_a_change_is_checked_by_the_parser_of_train_before_anything_is_written(
    tmp_path: Path, capsys: Output, refused: Refused
) -> None:
    make_fleet(tmp_path / "fleet", {"CartPole-v1": ["done"], "redline/Catch-v0": ["done"]})
    before = (tmp_path / "fleet" / "fleet.json").read_bytes()
    for args, said in (
        (("--set", "batch-sze=3"), "CartPole-v1 ppo: unknown option --batch-sze: did you mean --batch-size?"),
        (("--set", "replay.capacity=3"), "ppo has no replay memory"),
        (("--set", "batch-size"), "write NAME=VALUE"),
        (("--set", "seed=3"), "seed is no setting of a run in a fleet"),
        (("--only", "pong", "--set", "lr=1"), "--only names 'pong', which is not in the fleet"),
        (("--only", ",", "--set", "lr=1"), "--only is empty"),
        (("--set", "max-steps=30"), "max-steps: these runs have that already, so nothing changes"),
        (("--undo",), "there is no change to undo"),
        (("--undo", "--set", "lr=1"), "leave --only and --set out"),
        ((), "fleet change needs a setting"),
    ):
        refused(["fleet", "change", "fleet", *args], said)
    assert (tmp_path / "fleet" / "fleet.json").read_bytes() == before
    found = tell(
        capsys, "fleet", "change", "fleet", "--only", "CartPole-v1", "--set", "lr=0.01", "--set", "batch-size=64"
    )
    assert (found["version"], found["left"], found["new"]) == (2, ["cartpole-v1-ppo-s1"], ["cartpole-v1-ppo-s1.v2"])
    settings = read_listing(tmp_path / "fleet").slots[0].settings
    assert settings == {"max-steps": 30, "optimizer.lr": 0.01, "batch-size": 64}
    refused(["fleet", "change", "fleet", "--only", "CartPole-v1", "--set", "lr=0.01"], "so nothing changes")
    assert tell(capsys, "fleet", "change", "fleet", "--undo")["new"] == ["cartpole-v1-ppo-s1"]


@pytest.fixture
def elsewhere_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("elsewhere_here")
def test_a_schedule_has_hours_and_money(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "fleet.toml").write_text(
        'games = ["pong:900", "breakout:1800"]\nmodels = "ppo"\nseeds = "1-2"\n'
        'concurrency = 2\nprice-per-hour = 2\norder = "longest-first"\n'
    )
    found = tell(capsys, "fleet", "start", "fleet.toml", "--dry-run", "--rate", "900", "--unit", "episodes")
    assert [(row["game"], row["begins_after_hours"], row["hours"], row["cost"]) for row in found["slots"]] == [
        *(("breakout", 0, 2, 2), ("breakout", 0, 2, 2), ("pong", 2, 1, 1), ("pong", 2, 1, 1)),
    ]
    total = {"runs": 4, "concurrency": 2, "hours": 3, "days": 0.125, "cost": 6, "run_hours": 6}
    assert found["total"] == total
    assert main(["fleet", "start", "fleet.toml", "--dry-run"]) == DONE
    out = capsys.readouterr().out
    assert "4 runs, 2 at a time: unknown hours" in out
    assert "some hours are unknown: use --max-minutes" in out
    minutes = tell(capsys, "fleet", "start", "fleet.toml", "--dry-run", "--max-minutes", "30")
    assert minutes["total"]["hours"] == 1
    assert {row["may_end_earlier"] for row in minutes["slots"]} == {True}
    assert not (tmp_path / "fleets").exists()


@pytest.mark.usefixtures("elsewhere_here")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("start",), "fleet start needs a list"),
        (("start", "missing.toml"), "fleet file missing.toml can't be read: no such file or directory"),
        (("start", "fleet.toml", "--games", "pong"), "fleet.toml lists the runs: leave --games out"),
        (("start", "--games", "pong", "--seeds", "x"), "seeds is 'x': use a range"),
        (("start", "--games", "pong", "--model", "ppo", "--batch-sze", "3"), "did you mean --batch-size?"),
        (("start", "--games", "pong", "--model", "ppo", "--batch-size", "-3"), "pong ppo: batch-size is -3"),
        (("start", "--games", "pong", "--model", "ppo", "--replay.capacity", "9"), "ppo has no replay memory"),
        (("start", "--games", "pong", "--model", "ppo", "--topology", "async"), "pong ppo: "),
        (("start", "--games", "pong", "--log-dir", "x"), "log-dir is no setting of a run in a fleet"),
        (("start", "--games", "pong", "--concurrency", "0"), "concurrency is '0': use auto"),
        (("start", "--games", "pong", "--engine", "dask"), "engine is 'dask': use local, ray or slurm"),
        (("start", "--games", "pong", "--engine", "ray"), "--engine.address is missing: use HOST:PORT"),
        (("start", "--games", "pong", "--dry-run", "--unit", "episodes"), "--unit does nothing here"),
        (("start", "--games", "pong", "--dir", "."), ". is not empty and no fleet: use another --dir"),
        (("status", "."), ". is not a fleet: fleet.json: no such file or directory"),
        (("status",), "DIR is missing"),
        (("resume", "fleet.toml"), "fleet.toml is not a fleet: fleet.toml/fleet.json: not a directory"),
        (("resume", ".", "--order", "random"), "order is 'random': use longest-first"),
        (("stop", "."), ". is not a fleet"),
        (("run", ".", "slot"), ". is not a fleet"),
        (("begin",), "unknown subject of fleet 'begin'"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    tmp_path: Path, refused: Refused, args: tuple[str, ...], said: str
) -> None:
    (tmp_path / "fleet.toml").write_text("games = 'pong'")
    refused(["fleet", *args], said)
    assert [path.name for path in tmp_path.iterdir()] == ["fleet.toml"]


def test_a_list_is_checked_in_a_process_that_loads_torch_instead_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "HEAVY", "not loaded here")
    question = checking.Question(games="CartPole-v1", models="ppo", seeds="1-2", settings={"lr": 0.1})
    found = checking.ask(question)
    assert [slot.settings for slot in found.slots] == [{"optimizer.lr": 0.1}] * 2
    with pytest.raises(UserError, match=r"^CartPole-v1 ppo: unknown option --batch-sze: did you mean --batch-size"):
        checking.ask(checking.Question(games="CartPole-v1", models="ppo", settings={"batch-sze": 3}))


def test_a_setting_that_is_true_or_false_is_the_flag_that_says_so() -> None:
    slot = Slot("pong-dqn-s1", "pong", "dqn", 1, {"returns.clip-rewards": False, "record-values": True})
    assert checking.Checker()(slot).settings == {"returns.no-clip-rewards": True, "record-values": True}
    usual = Slot("pong-dqn-s1", "pong", "dqn", 1, {"returns.clip-rewards": True, "record-values": False})
    assert checking.Checker()(usual).settings == {}


def test_the_help_tells_what_there_is(capsys: Output) -> None:
    assert main(["fleet", "--help"]) == DONE
    out = capsys.readouterr().out
    assert "usage: redline fleet start|status|resume|stop|change|report" in out
    assert "check" not in out
