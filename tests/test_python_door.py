"""Redline from Python: the examples of docs/python.md, agents of every kind, and loops that are left."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import redline
from redline.cli.flags import parse_train
from redline.cli.main import DONE, main
from redline.errors import UserError
from redline.runs.directory import LOCK_NAME

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
CARTPOLE = {"log_dir": "runs", "monitor": {"hz": 0.0}}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_example_of_the_page_runs() -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 9
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, PAGE.name, "exec"), names)  # noqa: S102  our own page
    assert len(list(Path("runs").glob("*/*/*/run.json"))) == 4


def test_the_notebook_runs_from_its_first_cell_to_its_last() -> None:
    code = "import sys, nbclient, nbformat; nbclient.execute(nbformat.read(sys.argv[1], as_version=4), timeout=200)"
    notebook = PAGE.with_name("redline.ipynb")
    done = subprocess.run([sys.executable, "-c", code, str(notebook)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    (run,) = Path("runs").glob("*/*/*")
    assert redline.Run(run).metrics[-1]["steps"] == 24_000
    assert max(redline.Run(run).episodes.columns()["return"]) > 100.0


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, redline; print([name for name in ('torch', 'numpy', 'gymnasium') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    assert {"train", "training", "load", "Run"} <= set(dir(redline))
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = redline.trian


def test_a_loop_that_is_left_has_saved_its_run() -> None:
    loop = redline.training("CartPole-v1", "ppo", max_steps=1_000_000, **CARTPOLE)
    for reading in loop:
        assert reading["steps"] > 0
        break
    loop.close()
    run = loop.run
    assert loop.outcome is not None
    assert loop.outcome.reason == "the loop was left"
    assert run.events[-2]["event"] == "stop"
    assert run.events[-2]["reason"] == "the loop was left"
    steps = run.events[-1]["steps"]
    assert list(run.path.glob(f"checkpoints/*{steps}*"))
    again = run.resume(max_steps=steps + 2_048)  # the lock is free, and nothing is lost
    assert again.metrics[-1]["steps"] >= steps + 2_048


@pytest.mark.parametrize(("algorithm", "topology"), [("ppo", "inline"), ("dqn", "async")])
def test_a_loop_that_was_never_begun_holds_nothing(algorithm: str, topology: str) -> None:
    with redline.training("CartPole-v1", algorithm, topology=topology, max_steps=1_000_000, **CARTPOLE) as loop:
        pass
    assert loop.run.resume(topology="inline", max_steps=16).metrics[-1]["steps"] >= 16


def test_what_a_resume_changes_gives_way_as_on_the_command_line() -> None:
    run = redline.train("CartPole-v1", "dqn", max_steps=16, **CARTPOLE)
    assert run.resume(num_envs=4, max_steps=32).facts["config"]["num_envs"] == 4
    config = run.resume(topology="async", actors=2, max_steps=48).facts["config"]
    assert (config["actors"], config["actor"]["envs"], config["num_envs"]) == (2, 2, 4)
    assert config["evaluator"]["every_minutes"] > 0


def test_a_script_that_ends_within_its_loop_has_saved_the_run() -> None:
    code = "import redline; loop = redline.training('CartPole-v1', 'ppo', monitor={'hz': 0.0}); next(loop)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert redline.Run("last").events[-1]["event"] == "checkpoint"


def test_another_thread_may_hold_the_loop() -> None:
    loop = redline.training("CartPole-v1", "ppo", max_steps=2_048, **CARTPOLE)
    held: list[object] = []
    thread = threading.Thread(target=lambda: held.append(loop.finish()))
    thread.start()
    thread.join()
    assert len(held) == 1
    assert loop.outcome is not None
    assert loop.outcome.reason == "max-steps 2,048 reached"


def test_settings_mean_what_they_mean_on_the_command_line() -> None:
    def optimizer_of(**settings: object) -> dict[str, object]:
        with redline.training("CartPole-v1", "ppo", **settings, **CARTPOLE) as loop:  # type: ignore[arg-type]
            found: dict[str, object] = loop.run.facts["config"]["optimizer"]
            return found

    typed = parse_train(["--env", "CartPole-v1", "--algo", "ppo", "--optimizer", "rmsprop"]).job
    assert optimizer_of(optimizer="rmsprop")["lr"] == typed.algorithm.optimizer.lr_at(0)
    assert optimizer_of(lr=np.float64(0.002))["lr"] == 0.002
    with redline.training(env={"id": "CartPole-v1"}, model="ppo", **CARTPOLE) as loop:
        assert loop.run.facts["algorithm"] == "ppo"


def test_the_same_run_comes_of_the_command_line_and_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    by_python = redline.train("CartPole-v1", "ppo", seed=5, max_steps=2_048, **CARTPOLE)
    command = ["train", "--env", "CartPole-v1", "--model", "ppo", "--seed", "5", "--max-steps", "2048", "--json"]
    assert main(command) == DONE
    by_command = redline.Run(json.loads(capsys.readouterr().out)["run"])
    for run in (by_python, by_command):
        assert (run.path / LOCK_NAME).exists()
    assert by_python.episodes.columns()["return"].tolist() == by_command.episodes.columns()["return"].tolist()


def test_a_signal_while_it_trains_takes_effect_when_the_run_is_saved() -> None:
    loop = redline.training("CartPole-v1", "ppo", max_steps=1_000_000, **CARTPOLE)
    next(loop)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        for _ in loop:
            pass
    assert loop.outcome is not None
    assert loop.outcome.reason == "SIGINT"
    assert loop.run.events[-1]["event"] == "checkpoint"


@pytest.mark.parametrize(("algorithm", "width"), [("dqn", 0), ("drqn", 128), ("a2c", 0)])
def test_an_agent_acts_in_one_env_and_in_several(algorithm: str, width: int) -> None:
    run = redline.train("CartPole-v1", algorithm, max_steps=16, **CARTPOLE)
    agent = redline.load(run.path)
    assert agent.network.state_width == width
    one, several = np.zeros(4), np.zeros((3, 4))
    assert agent.act(one, greedy=True) in (0, 1)
    assert agent.act(several).shape == (3,)
    assert agent.act(several[:1]).shape == (1,)
    with pytest.raises(UserError, match=r"an observation has shape \(5,\): the agent was trained on \(4,\)"):
        agent.act(np.zeros(5))


def test_a_recurrent_agent_remembers_until_it_is_reset() -> None:
    agent = redline.train("CartPole-v1", "drqn", max_steps=16, **CARTPOLE).agent()
    observations = np.random.default_rng(1).normal(size=(2, 4))
    agent.act(observations)
    first = agent._state.clone()
    agent.act(observations)
    assert not np.array_equal(agent._state, first)
    agent.reset(np.array([True, False]))
    assert not agent._state[0].any()
    agent.act(observations)
    np.testing.assert_allclose(agent._state[0], first[0], atol=1e-6)
    assert not np.allclose(agent._state[1], first[1], atol=1e-6)


def test_an_agent_stacks_frames_itself_or_takes_them_stacked() -> None:
    run = redline.train("redline/Catch-v0", "ppo", network="small", max_steps=1_024, **CARTPOLE)
    stacking, stacked = run.agent(), run.agent()
    spec = stacking.spec
    frames = np.random.default_rng(1).integers(0, 256, size=(6, *spec.frame_shape), dtype=np.uint8)
    window = np.zeros((spec.stack, *spec.frame_shape), np.uint8)
    for frame in frames:
        window = np.concatenate([window[1:], frame[None]])
        assert stacking.act(frame) == stacked.act(window, stacked=True)
    with pytest.raises(UserError, match="say which, stacked=True or False"):
        stacked.act(window)
    assert stacked.act(window, stacked=False).shape == (spec.stack,)


def test_what_is_wrong_is_said_in_one_line() -> None:
    with pytest.raises(UserError, match="unknown algorithm 'pppo': did you mean ppo"):
        redline.train("CartPole-v1", "pppo")
    with pytest.raises(UserError, match="unknown setting 'max_step'"):
        redline.train("CartPole-v1", "ppo", max_step=3)
    with pytest.raises(UserError, match="is not a run directory"):
        redline.Run("nowhere")
    run = redline.train("CartPole-v1", "ppo", max_steps=256, **CARTPOLE)
    with pytest.raises(UserError, match="evaluate takes the settings of redline eval"):
        run.evaluate(games=3)


def test_what_a_run_sets_for_the_whole_process_is_said_and_can_be_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with caplog.at_level("INFO", logger="redline"):
            torch.set_flush_denormal(False)
            run = redline.train("CartPole-v1", "ppo", max_steps=8, sets_process=False, **CARTPOLE)
            run.resume(max_steps=16, sets_process=False).evaluate(episodes=1)
            assert torch.get_num_threads() == 2
            assert torch.tensor(torch.finfo(torch.float32).tiny) / 2 > 0.0  # denormals are kept
            assert "in this process PyTorch has" not in caplog.text
            redline.train("CartPole-v1", "ppo", max_steps=8, **CARTPOLE)
        assert torch.get_num_threads() == 1  # a small network gains nothing by more
        assert "in this process PyTorch has 1 threads" in caplog.text
    finally:
        torch.set_num_threads(before)
