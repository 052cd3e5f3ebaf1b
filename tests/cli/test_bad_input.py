"""Bad input: one clear line with a remedy, exit code 2, no traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from redline.cli.main import BAD_INPUT, main

ASYNC = ("train", "--env", "CartPole-v1", "--topology", "async")
CASES = [
    (["trian"], "unknown command 'trian': did you mean train"),
    (["train", "--env", "pongg"], "unknown env 'pongg': did you mean pong"),
    (["train", "--env", "CartPole-v9"], "did you mean CartPole-v1"),
    (["train", "--env", "Pendulum-v1"], "continuous actions"),
    (["train", "--env", "combat"], "no single-player mode"),
    (["train", "--algo", "dqm"], "unknown algorithm 'dqm': did you mean dqn"),
    (["train", "--model=dqm"], "unknown algorithm 'dqm'"),
    (["train", "--network", "natur"], "unknown network 'natur': did you mean nature"),
    (["train", "--network", "mlp"], "use --network nature"),
    (["train", "--env", "CartPole-v1", "--network", "small"], "use --network mlp"),
    (["train", "--batch-size", "0"], "batch-size is 0"),
    (["train", "--batch-size", "many"], "--batch-size"),
    (["train", "--num-envs", "0"], "num-envs is 0"),
    (["train", "--seed", "-1"], "seed is -1"),
    (["train", "--max-steps", "0"], "max-steps is 0"),
    (["train", "--max-minutes", "nan"], "max-minutes is nan"),
    (["train", "--target-return", "inf"], "target-return is inf"),
    (["train", "--checkpoint-minutes", "-1"], "checkpoint-minutes is -1"),
    (["train", "--price-per-hour", "-2"], "price-per-hour is -2: use 0 for no price, or a number above 0"),
    (["train", "--price-per-hour", "inf"], "price-per-hour is inf"),
    (["train", "--warmup-steps", "0"], "warmup-steps is 0"),
    (["train", "--samples-per-step", "0"], "samples-per-step is 0"),
    (["train", "--optimizer.lr", "inf"], "optimizer.lr is inf"),
    (["train", "--returns.gamma", "1.5"], "returns.gamma is 1.5"),
    (["train", "--explore.epsilon.end", "2"], "not between 0 and 1"),
    (["train", "--env.size", "20"], "--env.size 36 or more"),
    (["train", "--env.stack", "0"], "env.stack is 0"),
    (["train", "--env.skip", "0"], "env.skip is 0"),
    (["train", "--env.siz", "40"], "did you mean --env.size"),
    (["train", "--device", "tpu"], "use auto, cpu, cuda or cuda:i"),
    (["train", "--replay.capacity", "900_000_000"], "use --replay.capacity"),
    (["train", "--env", "CartPole-v1", "--replay.capacity", "3"], "use --replay.capacity"),
    (["train", "--replay.prefetch", "-1"], "replay.prefetch is -1"),
    (["train", "--algo", "ppo", "--replay.capacity", "9"], "ppo has no replay memory: leave --replay.capacity out"),
    (["train", "--learner.threads", "-1"], "learner.threads is -1: use 0 to let Redline choose"),
    (["train", "--actor.threads", "2000"], "actor.threads is 2000"),
    (["train", "--actor.envs", "-1"], "actor.envs is -1: use 0 to share --num-envs out"),
    (["train", "--actor.sync-steps", "0"], "actor.sync-steps is 0: use 1 to"),
    (["train", "--evaluator.threads", "0"], "evaluator.threads is 0: use 1 to 1_024"),
    (["train", "--evaluator.envs", "0"], "evaluator.envs is 0"),
    (["train", "--evaluator.episodes", "0"], "evaluator.episodes is 0"),
    (["train", "--evaluator.every-minutes", "nan"], "evaluator.every-minutes is nan: use 0 for no evaluation"),
    (["train", "--evaluate-every-steps", "-1"], "evaluate-every-steps is -1"),
    (["train", "--actors", "0"], "actors is 0: use 1 to 128"),
    (["train", "--topology", "asynch"], "--topology is 'asynch': use inline or async"),
    (["train", "--push", "steps"], "--push is 'steps': use step or chunk or episode"),
    (["train", "--pacing=loose"], "--pacing is 'loose': use held or lockstep or free"),
    (["train", "--actors", "2"], "--actors 2 needs actors in processes of their own: add --topology async"),
    (["train", "--push", "episode"], "--push episode needs actors in processes of their own"),
    (["train", "--pacing", "lockstep"], "--pacing lockstep needs actors in processes of their own"),
    (["train", "--evaluator.every-minutes", "1"], "use --evaluate-every-steps"),
    (["train", "--actor.device", "tpu"], "actor.device 'tpu' is unknown: use auto, cpu, cuda or cuda:i"),
    ([*ASYNC, "--actors", "3"], "--num-envs 8 can't be shared out evenly among --actors 3: use --num-envs 9"),
    ([*ASYNC, "--actors", "4", "--actor.envs", "1", "--num-envs", "8"], "are 4 envs, not --num-envs 8"),
    ([*ASYNC, "--actors", "128", "--actor.envs", "16"], "num-envs is 2048: use 1 to 1_024"),
    ([*ASYNC, "--evaluate-every-steps", "5"], "use --evaluator.every-minutes"),
    ([*ASYNC, "--pacing", "lockstep", "--actors", "2"], "use --actors 1, or --pacing held"),
    ([*ASYNC, "--pacing", "lockstep", "--push", "chunk"], "use --push step, or --pacing held"),
    *[([*ASYNC, "--algo", name], "use --topology inline") for name in ("a2c", "ppo", "pqn")],
    (["train", "--env"], "--env"),
    (["train", "--env", "no_such_module:CartPole-v1"], "module no_such_module can't be imported"),
    (["train", "--predict.huber-delta", "0"], "predict.huber-delta is 0"),
    (["train", "--network.width", "0"], "1 to 65_536 units"),
    (["train", "--replay.codec", "zst"], "unknown replay.codec 'zst': did you mean zstd?"),
    (["train", "--replay.bytes", "1GB"], "--replay.bytes is '1GB', but it takes a whole number"),
    (["train", "--replay.bytes", "0"], "replay.bytes is 0: use 1 or more"),
    (["train", "--replay.bytes", "1000"], "use --replay.bytes"),
    (["train", "--replay.prefetch", "65"], "use 0 to 64"),
    (["train", "--sample", "prioritised"], "unknown sample 'prioritised': did you mean prioritized?"),
    (["train", "--sample", "prioritized", "--sample.alpha", "0"], "0 is --sample uniform"),
    (["train", "--env", "CartPole-v1", "--network.widths"], "1 to 65_536 units"),
    (["train", "--batch-size", "1000000000000"], "batch-size is 1000000000000"),
    (["train", "--env", "CartPole-v1", "--log-dir", "x" * 300], "cannot create a run"),
    (["train", "--config", "nowhere.toml"], "can't be read"),
    (["resume"], "needs a run directory"),
    (["resume", "nowhere"], "not a run directory"),
]


@pytest.mark.parametrize(("args", "message"), CASES, ids=[" ".join(args) for args, _ in CASES])
def test_one_line_with_a_remedy(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(args, message)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind by a run that never began


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[replay]\ncapcity = 5\n", "unknown setting 'replay.capcity': did you mean replay.capacity"),
        ("batch_size = 'x'\n", "batch_size is 'x'"),
        ("env = 'pongg'\n", "did you mean pong"),
        ("algo = 'dqm'\n", "did you mean dqn"),
        ("algo = \n", "is not TOML"),
        ("\x00", "is not TOML"),
        ("env = 5\n", "unknown env '5'"),
        ("[limits]\nmax_steps = 5\n", "unknown setting 'limits'"),
        ("max-steps = 5\nmax_steps = 6\n", "given twice"),
        ("topology = 'asynch'\n", "setting topology is 'asynch': use inline or async"),
        ("push = 3\n", "setting push is 3: use step or chunk or episode"),
        ("[actor]\nenvs = 3\nthread = 1\n", "unknown setting 'actor.thread': did you mean actor.threads"),
        ("num_envs = 8\nactors = 2\n[actor]\nenvs = 3\n", "--actors 2 needs actors"),
        ("num_envs = 8\nactors = 2\ntopology = 'async'\n[actor]\nenvs = 3\n", "are 6 envs, not --num-envs 8"),
        (f"x = {'[' * 5_000}", "is not TOML"),
    ],
)
def test_a_bad_config_file_is_named_with_its_key(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "job.toml"
    config.write_text(text, encoding="utf-8")
    assert main(["train", "--config", str(config)]) == BAD_INPUT
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_with_json_the_error_is_the_one_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--env", "pongg", "--json"]) == BAD_INPUT
    assert "unknown env" in json.loads(capsys.readouterr().out)["error"]


def test_a_log_dir_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["train", "--env", "CartPole-v1", "--log-dir", str(tmp_path / "file")]) == BAD_INPUT
    assert "cannot create a run" in capsys.readouterr().err


def test_a_run_without_a_valid_checkpoint_is_an_error_never_a_fresh_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["train", "--env", "CartPole-v1", "--log-dir", str(tmp_path), "--max-steps", "8", "--plain"]
    assert main(args) == 0
    (run,) = tmp_path.glob("cartpole-v1/dqn/*")
    for manifest in run.glob("checkpoints/*/manifest.json"):
        manifest.write_text("{}")
    capsys.readouterr()
    assert main(["resume", str(run)]) == BAD_INPUT
    assert "no valid checkpoint" in capsys.readouterr().err


def test_a_full_disk_is_refused_before_the_start_with_its_mount(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--env", "CartPole-v1", "--log-dir", str(small_disk)]) == BAD_INPUT
    err = capsys.readouterr().err
    assert f"{small_disk} has 1.05 MB free" in err
    assert "--log-dir" in err
    assert list(small_disk.iterdir()) == []


@pytest.mark.parametrize("command", ["resume", "eval", "play", "watch", "episodes", "report"])
def test_a_name_that_no_file_can_have_is_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "n" * 300]) == BAD_INPUT
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "args",
    [
        ["tune", "--env", "CartPole-v1", "--study", "\x1b[31mred"],
        ["monitor", "--out=\x1b[31m", "--pid", "1"],
        ["report", "a\x9bb"],
        ["\x07"],
    ],
)
def test_no_argument_may_steer_the_terminal(args: list[str], refused: Any) -> None:
    refused(args, "holds characters that can't be printed: leave them out")
