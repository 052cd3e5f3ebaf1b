"""`redline train` and `redline resume` as a user runs them."""

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from redline.cli.flags import MAIN_FLAGS
from redline.cli.main import BAD_INPUT, DONE, RESUMABLE, main
from redline.jsonl import read_records
from waiting import wait_for

CARTPOLE = ("--env", "CartPole-v1", "--warmup-steps", "200")


def steps_recorded(log_dir: Path) -> int:
    rows = [row for path in log_dir.glob("*/*/*/episodes.jsonl") for row in read_records(path)]
    return max((int(row["steps"]) for row in rows), default=0)


def test_a_run_directory_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = [*CARTPOLE, "--max-steps", "1000", "--seed", "3", "--log_dir", str(tmp_path), "--json"]
    assert main(["train", *args]) == DONE
    summary = json.loads(capsys.readouterr().out)
    run = Path(summary["run"])
    assert run.parent == tmp_path / "cartpole-v1" / "dqn"
    assert run.name.endswith("-s3")
    assert run.stat().st_mode & 0o077 == 0
    facts = json.loads((run / "run.json").read_text())
    assert {"command", "config", "host", "versions", "commit", "algorithm", "protocol"} <= facts.keys()
    assert {path.name for path in (run / "checkpoints" / "1000").iterdir()} == {
        "run.copy.json",
        "weights.safetensors",
        "target.safetensors",
        "optimizer.safetensors",
        "arrays.safetensors",
        "state.json",
        "manifest.json",
    }
    assert (run / "checkpoints" / "0").is_dir()
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))
    events = [row["event"] for row in read_records(run / "events.jsonl")]
    assert events == ["start", "checkpoint", "process", "monitor-start", "monitor-stop", "stop", "checkpoint"]
    for name in ("metrics", "episodes", "events", "hardware"):
        assert all(row["schema"] == 1 for row in read_records(run / f"{name}.jsonl"))
    assert summary["steps"] == 1_000
    assert summary["frames"] == 1_000
    # the updates of a vector step draw from what was complete before it: 992 steps, 200 of them warm-up
    assert summary["updates"] == (992 - 200) * 32 // 64


def test_lines_and_the_summary_name_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *CARTPOLE, "--max-steps", "400", "--log-dir", str(tmp_path), "--plain"]) == DONE
    out = capsys.readouterr().out
    (run,) = tmp_path.glob("*/*/*")
    assert "steps/s" in out
    assert "stopped: max-steps 400 reached" in out
    assert f"redline resume {run}" in out


def test_a_price_is_kept_by_a_resume_and_changes_nothing_that_is_learnt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*args: str) -> dict[str, Any]:
        assert main([*args, "--json"]) == DONE
        summary: dict[str, Any] = json.loads(capsys.readouterr().out)
        return summary

    def train(steps: int, *more: str) -> dict[str, Any]:
        return told("train", *CARTPOLE, "--max-steps", str(steps), "--log-dir", str(tmp_path), *more)

    first = train(600, "--price-per-hour", "1.8")
    whole = told("resume", first["run"], "--max-steps", "800")
    assert whole["price_per_hour"] == 1.8
    assert whole["cost"] == pytest.approx(whole["elapsed_s"] * 1.8 / 3_600)
    assert whole["cost"] > first["cost"] > 0.0
    free = train(800)
    assert free["cost"] is None
    weights = [Path(summary["checkpoint"]) / "weights.safetensors" for summary in (whole, free)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    (resumed,) = json.loads((Path(whole["run"]) / "run.json").read_text())["resumes"]
    assert resumed["changes"] == {"max_steps": "600 → 800"}
    ended = told("resume", whole["run"], "--max-steps", "808", "--price-per-hour", "0")
    assert (ended["steps"], ended["cost"]) == (808, None)


def test_the_warm_up_and_the_evaluations_are_told_apart_from_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["train", *CARTPOLE, "--max-steps", "400", "--evaluate-every-steps", "200", "--log-dir", str(tmp_path)]
    assert main([*args, "--evaluator.episodes", "2", "--plain"]) == DONE
    out = capsys.readouterr().out
    assert "evaluation 2 with the weights of step 400: mean" in out
    assert "in the warm-up), " in out
    assert re.search(r"mean-100 \d+\.\d\d \(n = \d+\), best \d+\.0, eval \d+\.\d\d at step 400, memory", out)
    assert main([*args, "--evaluator.episodes", "2", "--json"]) == DONE
    summary = json.loads(capsys.readouterr().out)
    assert summary["warmup_steps_per_s"] > summary["learning_steps_per_s"] > 0
    assert (summary["greedy_at_steps"], summary["greedy_return"] > 0) == (400, True)
    (role,) = summary["roles"]
    assert (role["role"], role["pid"]) == ("inline", os.getpid())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, DONE), (signal.SIGTERM, RESUMABLE)])
def test_a_signal_during_an_evaluation_stops_at_once_with_a_checkpoint(
    number: signal.Signals, code: int, tmp_path: Path, main_beside: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    sent_s: list[float] = []

    def stop(send: Any) -> None:
        # nothing more is recorded once the evaluation has begun, which would take hours
        wait_for(lambda: steps_recorded(tmp_path) > 350, "the evaluation is near")
        time.sleep(1.0)
        sent_s.append(time.monotonic())
        send(number)

    args = ("--evaluate-every-steps", 400, "--evaluator.episodes", 1_000_000, "--log-dir", tmp_path, "--json")
    assert main_beside(stop, ("train", *CARTPOLE, *args)) == code
    assert time.monotonic() - sent_s[0] < 10.0
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert (summary["reason"], summary["steps"], summary["greedy_return"]) == (number.name, 400, None)
    assert Path(summary["checkpoint"]).name == "400"
    assert f"evaluation 1 dropped: {number.name} after" in err


def test_steps_round_up_to_whole_vector_steps_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *CARTPOLE, "--max-steps", "401", "--log-dir", str(tmp_path), "--plain"]) == DONE
    assert "requested → effective: max-steps: 401 → 408 (8 envs step together)" in capsys.readouterr().out
    assert list(tmp_path.glob("*/*/*/checkpoints/408"))


@pytest.mark.parametrize(
    ("limit", "reached"),
    [
        (["--max-frames", "160", "--env.stack", "2"], "max-frames 160 reached"),
        (["--max-episodes", "5"], "max-episodes 5 reached"),
        (["--max-minutes", "0.01"], "max-minutes 0.01 reached"),
        (["--target-return", "5"], "target-return 5 reached"),
    ],
)
def test_each_limit_ends_a_run(
    limit: list[str], reached: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *CARTPOLE, *limit, "--log-dir", str(tmp_path), "--json"]) == DONE
    summary = json.loads(capsys.readouterr().out)
    assert summary["reason"] == reached
    if "target" in reached:
        assert summary["episodes"] >= 100


def test_flags_override_the_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "job.toml"
    config.write_text('env = "CartPole-v1"\nmax_steps = 160\nbatch_size = 16\n[replay]\ncapacity = 900\n')
    args = ["train", "--config", str(config), "--batch-size", "24", "--log-dir", str(tmp_path), "--json"]
    assert main(args) == DONE
    run = Path(json.loads(capsys.readouterr().out)["run"])
    settings = json.loads((run / "run.json").read_text())["config"]
    assert (settings["max_steps"], settings["batch_size"], settings["replay"]["capacity"]) == (160, 24, 900)


def test_help_shows_the_chosen_domains_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    texts = {}
    for env in ("pong", "CartPole-v1"):
        assert main(["train", "--env", env, "--help-all"]) == DONE
        texts[env] = " ".join(capsys.readouterr().out.split())
    assert "Transitions in one update. (default: 32)" in texts["pong"]
    assert "Transitions in one update. (default: 64)" in texts["CartPole-v1"]
    assert "--network.widths" in texts["CartPole-v1"]
    for flag in ("--model", "--algo", "--env", "--max-frames", "--target-return", "--checkpoint-minutes", "--config"):
        assert flag in texts["pong"]


def test_help_shows_the_flags_that_matter_and_names_the_way_to_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--env", "CartPole-v1", "--model", "ppo", "--help"]) == DONE
    text = capsys.readouterr().out
    shown = set(re.findall(r"^  (?:-h, )?(--[\w.-]+)", text, flags=re.MULTILINE))
    assert shown == MAIN_FLAGS
    assert "--help-all" in text
    assert "Seed of the run" in text
    assert "Learning rate" in text
    assert main(["train", "--model", "all", "-h"]) == DONE


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, DONE), (signal.SIGTERM, RESUMABLE)])
def test_a_signal_leaves_a_checkpoint_to_resume_from(
    number: signal.Signals, code: int, tmp_path: Path, main_beside: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(send: Any) -> None:
        wait_for(lambda: steps_recorded(tmp_path) > 500, "it trains")
        send(number)

    args = ("--max-steps", 100_000, "--log-dir", tmp_path, "--json")
    assert main_beside(stop, ("train", *CARTPOLE, *args)) == code
    summary = json.loads(capsys.readouterr().out)
    assert summary["reason"] == number.name
    assert main(["resume", summary["run"], "--max-steps", str(summary["steps"] + 800), "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["steps"] == summary["steps"] + 800


def test_kill_at_any_moment_loses_nothing_but_what_came_after_the_checkpoint(
    tmp_path: Path, start_program: Any
) -> None:
    args = (*CARTPOLE, "--max-steps", 6_000, "--checkpoint-minutes", 0.004, "--log-dir", tmp_path, "--json")
    program = start_program("train", *args)
    wait_for(lambda: steps_recorded(tmp_path) > 300, "it trains")
    (run,) = tmp_path.glob("*/*/*")
    for more in (600, 800):
        seen = steps_recorded(tmp_path)
        has_trained = lambda: steps_recorded(tmp_path) > seen + more or program.poll() is not None  # noqa: B023, E731
        wait_for(has_trained, "it trains on")
        program.kill()
        program.communicate()
        newest = max(int(path.name) for path in run.glob("checkpoints/[0-9]*"))
        assert newest > 0
        program = start_program("resume", run, "--json")
        wait_for(lambda: any(row["event"] == "resume" for row in read_records(run / "events.jsonl")), "it is resumed")
    out, _ = program.communicate(timeout=120)
    assert program.returncode == DONE
    rows = read_records(run / "episodes.jsonl")
    assert json.loads(out)["episodes"] == len(rows)
    assert len({(row["lane"], row["seed"]) for row in rows}) == len(rows)
    assert [row["steps"] for row in rows] == sorted(row["steps"] for row in rows)


def test_a_reader_that_goes_away_stops_the_run_with_a_checkpoint(tmp_path: Path, start_program: Any) -> None:
    often = ("--evaluate-every-steps", 400, "--evaluator.episodes", 1)  # lines that meet the closed pipe at once
    program = start_program("train", *CARTPOLE, *often, "--max-steps", 200_000, "--log-dir", tmp_path, "--plain")
    assert any("done: " in line for line in program.stdout)  # it has begun to train
    program.stdout.close()
    assert program.wait(timeout=60) == RESUMABLE
    assert program.stderr.read() == ""
    program.stderr.close()
    newest = max(int(path.name) for path in tmp_path.glob("*/*/*/checkpoints/[0-9]*"))
    assert newest > 0


def test_a_number_of_envs_that_is_typed_on_resume_is_shared_out_anew(tmp_path: Path) -> None:
    args = [*CARTPOLE, "--max-steps", "80", "--log-dir", str(tmp_path), "--plain"]
    assert main(["train", *args, "--actor.envs", "4"]) == DONE
    (run,) = tmp_path.glob("cartpole-v1/dqn/*")
    config = json.loads((run / "run.json").read_text())["config"]
    assert (config["num_envs"], config["actor"]["envs"]) == (4, 4)
    assert main(["resume", str(run), "--num-envs", "5", "--max-steps", "160", "--plain"]) == DONE
    facts = json.loads((run / "run.json").read_text())
    changes = facts["resumes"][0]["changes"]
    assert changes == {"num_envs": "4 → 5", "actor.envs": "4 → 5", "max_steps": "80 → 160"}
    assert main(["resume", str(run), "--num-envs", "4", "--actor.envs", "5", "--plain"]) == BAD_INPUT


def test_a_run_of_another_version_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *CARTPOLE, "--max-steps", "8", "--log-dir", str(tmp_path), "--plain"]) == DONE
    (run,) = tmp_path.glob("cartpole-v1/dqn/*")
    facts = json.loads((run / "run.json").read_text())
    facts["config"]["threads"] = {"learner": 1, "envs": 1}
    (run / "run.json").write_text(json.dumps(facts))
    capsys.readouterr()
    assert main(["resume", str(run), "--accept_changes"]) == BAD_INPUT  # with an underscore, as any flag may be typed
    assert "not a run of this version of Redline: unknown setting 'threads'" in capsys.readouterr().err


def test_resume_keeps_the_facts_of_the_start_and_adds_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["redline", "train"])
    assert main(["train", *CARTPOLE, "--max-steps", "80", "--log-dir", str(tmp_path), "--json"]) == DONE
    run = Path(json.loads(capsys.readouterr().out)["run"])
    monkeypatch.setattr("sys.argv", ["redline", "resume"])
    assert main(["resume", "--json", str(run), "--max-steps", "160"]) == DONE
    facts = json.loads((run / "run.json").read_text())
    assert facts["command"] == "redline train"
    assert [resumed["command"] for resumed in facts["resumes"]] == ["redline resume"]
    assert facts["resumes"][0]["changes"] == {"max_steps": "80 → 160"}
    assert facts["resumes"][0]["inexact"] == []
    assert facts["config"]["max_steps"] == 160


def test_the_last_of_two_spellings_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--model", "nonsense", "--algo", "dqn", "--max-steps", "8", "--log-dir", str(tmp_path), "--json"]
    assert main(["train", *CARTPOLE, *args]) == DONE
    assert json.loads(capsys.readouterr().out)["steps"] == 8


def test_without_tensorboard_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from redline.runtime import sinks

    monkeypatch.setattr(sinks, "find_spec", lambda name: None)  # as on a machine without the extra
    assert main(["train", *CARTPOLE, "--max-steps", "80", "--log-dir", str(tmp_path), "--plain"]) == DONE
    assert capsys.readouterr().out.count("pip install tensorboard") == 1
    assert not list(tmp_path.glob("*/*/*/tensorboard"))
