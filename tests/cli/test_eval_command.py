"""`redline eval` as a user runs it."""

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from played_runs import content, train
from safetensors.torch import load_file

from redline.cli.main import BAD_INPUT, DONE, FAILED, main
from redline.envs.reference_scores import REFERENCES, normalise
from redline.envs.vector import reset_seed
from redline.runs.directory import RunDirectory
from redline.runs.manifest import NEWEST, find_checkpoint
from redline.runtime.evaluation import evaluation_seed
from redline.runtime.playing import load_weights
from redline.runtime.resuming import read_run
from redline.types import EnvSpec

Output = pytest.CaptureFixture[str]
Folders = pytest.TempPathFactory


@pytest.fixture(scope="module")
def dqn(tmp_path_factory: Folders) -> Path:
    args = ("--env", "CartPole-v1", "--num-envs", "4", "--warmup-steps", "200", "--max-steps", "400")
    return train(tmp_path_factory.mktemp("dqn"), *args, "--replay.capacity", "1000")


@pytest.fixture(scope="module")
def ppo(tmp_path_factory: Folders) -> Path:
    args = ("--model", "ppo", "--env", "CartPole-v1", "--rollout-steps", "16", "--batch-size", "32")
    return train(tmp_path_factory.mktemp("ppo"), *args, "--num-envs", "4", "--max-steps", "256")


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: Folders) -> Path:
    args = ("--model", "noisy-dqn", "--env", "CartPole-v1", "--num-envs", "4", "--warmup-steps", "100")
    return train(tmp_path_factory.mktemp("noisy"), *args, "--max-steps", "120", "--replay.capacity", "1000")


@pytest.fixture(scope="module")
def pong(tmp_path_factory: Folders) -> Path:
    args = ("--env", "pong", "--env.max-episode-frames", "200", "--network", "small", "--num-envs", "2")
    steps = ("--warmup-steps", "36", "--max-steps", "40", "--replay.capacity", "1000")
    return train(tmp_path_factory.mktemp("pong"), *args, *steps)


@pytest.fixture
def evaluate(capsys: Output) -> Callable[..., dict[str, Any]]:
    """Evaluate a run and return the one object that is printed."""

    def evaluate(run: Path, *args: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["eval", str(run), "--json", *args]) == DONE
        out, err = capsys.readouterr()
        assert err == ""
        found: dict[str, Any] = json.loads(out)
        return found

    return evaluate


def test_exactly_the_episodes_asked_for_are_reported(dqn: Path, evaluate: Callable[..., dict[str, Any]]) -> None:
    found = evaluate(dqn, "--episodes", "7", "--num-envs", "3")
    assert (found["schema"], found["episodes"], found["num_envs"]) == (1, 7, 3)
    assert len(found["returns"]) == len(found["lengths_steps"]) == len(set(found["key_seeds"])) == 7
    assert found["returns"] == found["lengths_steps"]  # CartPole pays 1 per step
    assert found["mean_return"] == pytest.approx(sum(found["returns"]) / 7)
    interval = found["interval"]
    assert min(found["returns"]) <= interval["low"] <= found["mean_return"] <= interval["high"]
    assert interval["level"] == 0.9
    assert (found["checkpoint_steps"], found["epsilon"], found["acting"]) == (400, 0.0, "greedy")
    assert found["human_normalised"] is None
    assert found["reference"] is None


def test_the_same_seed_plays_the_same_and_another_plays_other_games(
    dqn: Path, evaluate: Callable[..., dict[str, Any]]
) -> None:
    first, again, other = (evaluate(dqn, "--episodes", "6", "--seed", seed) for seed in ("3", "3", "4"))
    assert first["returns"] == again["returns"]
    assert first["key_seeds"] == again["key_seeds"]
    assert not set(first["key_seeds"]) & set(other["key_seeds"])


def test_no_game_of_an_evaluation_was_one_of_training(dqn: Path, evaluate: Callable[..., dict[str, Any]]) -> None:
    trained = {reset_seed(1, lane, number) for lane in range(4) for number in range(200)}
    assert not trained & set(evaluate(dqn, "--episodes", "8")["key_seeds"])
    assert evaluation_seed(1, 0) not in (0, 1)


def test_a_run_that_is_being_written_is_evaluated_and_left_as_it_was(
    dqn: Path, evaluate: Callable[..., dict[str, Any]]
) -> None:
    with RunDirectory.open(dqn):
        before = content(dqn)
        assert evaluate(dqn, "--episodes", "2")["checkpoint_steps"] == 400
        assert content(dqn) == before


def test_a_checkpoint_can_be_chosen(dqn: Path, evaluate: Callable[..., dict[str, Any]]) -> None:
    assert evaluate(dqn, "--episodes", "2", "--checkpoint", "0")["checkpoint_steps"] == 0


def test_the_weights_are_those_of_the_checkpoint(dqn: Path) -> None:
    spec = EnvSpec("cartpole-v1", (4,), "float32", 1, 2, 1)
    network = read_run(dqn).job.algorithm.build_network(spec, torch.Generator())
    load_weights(network, find_checkpoint(dqn, NEWEST, with_replay=False))
    saved = load_file(dqn / "checkpoints" / "400" / "weights.safetensors")
    assert network.state_dict().keys() == saved.keys()
    assert all(torch.equal(network.state_dict()[name], value) for name, value in saved.items())


def test_a_policy_is_followed_greedily_unless_draws_are_asked_for(
    ppo: Path, evaluate: Callable[..., dict[str, Any]]
) -> None:
    greedy, drawn = evaluate(ppo, "--episodes", "20"), evaluate(ppo, "--episodes", "20", "--sample")
    assert (greedy["acting"], greedy["epsilon"], drawn["acting"]) == ("greedy", 0.0, "sampled")
    assert greedy["returns"] != drawn["returns"]


def test_epsilon_can_be_given(ppo: Path, evaluate: Callable[..., dict[str, Any]]) -> None:
    found = evaluate(ppo, "--episodes", "40", "--epsilon", "1.0")
    assert found["epsilon"] == 1.0
    assert 15.0 < found["mean_return"] < 32.0  # random play holds the pole for about 22 steps


def test_a_noisy_run_is_evaluated_without_random_actions(noisy: Path, evaluate: Callable[..., dict[str, Any]]) -> None:
    assert evaluate(noisy, "--episodes", "2")["epsilon"] == 0.0


def test_atari_is_compared_with_a_human_and_says_its_protocol(
    pong: Path, evaluate: Callable[..., dict[str, Any]], capsys: Output
) -> None:
    found = evaluate(pong, "--episodes", "3", "--num-envs", "2", "--epsilon", "0.1")
    assert found["truncated"] == 3  # by the limit of 200 frames, no-ops included
    assert found["mean_length_frames"] == 4 * found["mean_length_steps"] <= 200
    assert found["human_normalised"] == pytest.approx(normalise(found["mean_return"], REFERENCES["pong"]))
    assert found["reference"] == {"random": -20.7, "human": 14.6}
    assert "losing a life ends nothing" in found["protocol"]
    assert "at most 200 frames" in found["protocol"]
    assert main(["eval", str(pong), "--episodes", "1", "--plain"]) == DONE
    out = capsys.readouterr().out
    for text in ("(random −20.7, human 14.6", "one episode has no spread", "1 of them truncated", "ε = 0.05"):
        assert text in out


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["--episodes", "0"], "episodes is 0: use 1 to 10_000"),
        (["--episodes", "many"], "episodes"),
        (["--epsilon", "1.5"], "between 0 and 1"),
        (["--num-envs", "0"], "num-envs is 0"),
        (["--seed", "-1"], "seed is -1"),
        (["--checkpoint", "123"], "has no checkpoint 123: it has 0, 400"),
        (["--checkpoint", "last"], "use newest, best or its steps"),
        (["--sample"], "learns values, which are no policy to draw from"),
        (["--sample", "--epsilon", "0.1"], "use one of them"),
        (["--frobnicate"], "frobnicate"),
    ],
)
def test_bad_input_is_one_line(args: list[str], part: str, dqn: Path, refused: Any) -> None:
    refused(["eval", str(dqn), *args], part)


def test_a_missing_run_and_a_run_without_checkpoint_are_refused(tmp_path: Path, dqn: Path, capsys: Output) -> None:
    empty = tmp_path / "run"
    empty.mkdir()
    (empty / "run.json").write_bytes((dqn / "run.json").read_bytes())
    for args, part in (
        ([], "needs a run directory"),
        ([str(tmp_path / "none")], "is not a run directory"),
        ([str(empty)], "holds no valid checkpoint"),
        ([str(empty), "--checkpoint", "best"], "no checkpoint of"),
    ):
        assert main(["eval", *args, "--json"]) == BAD_INPUT
        out, err = capsys.readouterr()
        assert part in err
        assert part in json.loads(out)["error"]


def test_an_interrupted_evaluation_reports_nothing(dqn: Path, capsys: Output) -> None:
    capsys.readouterr()
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    assert main(["eval", str(dqn), "--episodes", "10000", "--num-envs", "1"]) == FAILED
    timer.join()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "of 10000 episodes: nothing is reported" in err
