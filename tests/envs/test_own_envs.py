"""Envs of one's own: pictures of every shape reach a convolution, and train, resume, replay and act as others do."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import redline
from redline.cli.flags import train_defaults
from redline.cli.main import DONE, main
from redline.envs import catalog
from redline.envs.catalog import resolve
from redline.envs.classic import frame_converter
from redline.envs.config import EnvConfig
from redline.envs.vector import VectorEnv
from redline.errors import UserError
from redline.networks.torsos import ConvolutionalTorso


class Pictures(gymnasium.Env[np.ndarray, np.int64]):
    """Shows random pictures; action 1 is worth 1."""

    action_space = Discrete(2)

    def __init__(self, shape: tuple[int, ...], dtype: type) -> None:
        self.observation_space = Box(0, 1 if dtype is np.bool_ else 255, shape, dtype)  # type: ignore[arg-type]
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return self._shown(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        return self._shown(), float(action), self.steps == 10, False, {}

    def _shown(self) -> np.ndarray:
        high = int(self.observation_space.high.max()) + 1  # type: ignore[attr-defined]
        shape, dtype = self.observation_space.shape, self.observation_space.dtype
        return self.np_random.integers(high, size=shape).astype(dtype)


SHAPES: dict[str, tuple[tuple[int, ...], type, tuple[int, ...]]] = {
    "rgb": ((64, 48, 3), np.uint8, (3, 64, 48)),
    "channels-first": ((3, 40, 40), np.uint8, (3, 40, 40)),
    "grey": ((40, 40, 1), np.uint8, (40, 40)),
    "boolean": ((10, 10, 4), np.bool_, (4, 10, 10)),
    "boolean-cube": ((10, 10, 10), np.bool_, (10, 10, 10)),
    "boolean-plane": ((10, 10), np.bool_, (10, 10)),
}
SMALL = {"network": {"name": "strided", "channels": [4]}, "env": {"stack": 2}, "batch_size": 32, "rollout_steps": 16}


@pytest.fixture(autouse=True)
def own_envs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_registered", {})
    for name, (shape, dtype, _) in SHAPES.items():
        redline.register_env(
            f"my/{name}", lambda shape=shape, dtype=dtype: Pictures(shape, dtype), presets={"ppo": SMALL}
        )


@pytest.mark.parametrize("name", SHAPES)
def test_a_picture_of_any_shape_becomes_a_frame_with_its_channels_first(name: str) -> None:
    shape, dtype, frame_shape = SHAPES[name]
    space = Box(0, 1 if dtype is np.bool_ else 255, shape, dtype)  # type: ignore[arg-type]
    observation = np.zeros(shape, dtype)
    observation[(5, 7) if len(shape) == 2 else (2, 7, 30) if name == "channels-first" else (5, 7, shape[2] - 1)] = 1
    frame = frame_converter(space)(observation)
    assert (frame.shape, frame.dtype, frame.flags.c_contiguous) == (frame_shape, np.uint8, True)
    place = (2, 7, 30) if name == "channels-first" else (5, 7) if len(frame_shape) == 2 else (shape[2] - 1, 5, 7)
    assert frame[place] == frame.sum() == (255 if dtype is np.bool_ else 1)
    assert not np.shares_memory(frame, observation)
    assert resolve(f"my/{name}").spec(EnvConfig()).frame_shape == frame_shape


@pytest.mark.parametrize("name", SHAPES)
def test_it_trains_by_a_convolution_resumes_acts_and_is_played_again(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape, dtype, _ = SHAPES[name]
    run = redline.train(f"my/{name}", "ppo", max_steps=256, log_dir=tmp_path, monitor={"hz": 0.0})
    run = run.resume(max_steps=512)
    assert run.facts["resumes"][0]["inexact"] == []
    agent = run.agent()
    assert isinstance(agent.network.torso, ConvolutionalTorso)
    env = Pictures(shape, dtype)
    one, _ = env.reset(seed=1)
    assert agent.act(one, greedy=True) in (0, 1)
    assert agent.act(np.stack([one, one, one])).shape == (3,)
    assert main(["play", str(run.path), "--verify", "--json"]) == DONE


def test_an_agent_sees_what_training_saw(tmp_path: Path) -> None:
    run = redline.train("my/boolean", "ppo", max_steps=128, log_dir=tmp_path, monitor={"hz": 0.0}, env={"stack": 1})
    observation, _ = Pictures((10, 10, 4), np.bool_).reset(seed=3)
    by_env, by_frame = run.agent(), run.agent()
    by_env.act(observation)
    by_frame.act(np.moveaxis(observation, -1, 0).astype(np.uint8) * 255)
    assert by_env._stack is not None
    assert by_frame._stack is not None
    np.testing.assert_array_equal(by_env._stack, by_frame._stack)


def test_presets_of_an_env_give_way_to_what_is_asked_for(tmp_path: Path) -> None:
    with redline.training("my/rgb", "ppo", log_dir=tmp_path, batch_size=64, env={"stack": 1}) as loop:
        config = loop.run.facts["config"]
    assert (config["batch_size"], config["rollout_steps"], config["env"]["stack"]) == (64, 16, 1)
    assert config["network"]["channels"] == [4]


def test_an_env_that_fails_to_be_made_is_told_of_in_one_line() -> None:
    def fail() -> gymnasium.Env[Any, Any]:
        raise RuntimeError("no licence")

    redline.register_env("my/broken", fail)
    with pytest.raises(UserError, match=r"env 'my/broken' cannot be made: RuntimeError\('no licence'\)"):
        redline.train("my/broken", "ppo")
    with pytest.raises(UserError, match="can't be registered as 'a:b'"):
        redline.register_env("a:b", fail)


def test_an_env_may_be_drawn_by_its_owner(tmp_path: Path) -> None:
    drawn = []

    def draw(env: gymnasium.Env[Any, Any]) -> np.ndarray:
        drawn.append(env)
        return np.full((24, 24, 3), 9, np.uint8)

    redline.register_env("my/drawn", lambda: Pictures((10, 10, 4), np.bool_), presets={"ppo": SMALL}, draw=draw)
    run = redline.train("my/drawn", "ppo", max_steps=256, log_dir=tmp_path, monitor={"hz": 0.0})
    assert main(["play", str(run.path), "--sheet", str(tmp_path / "sheet.png")]) == DONE
    assert drawn


class StartsAtFive(Pictures):
    """Counts its actions from 5 on."""

    action_space = Discrete(2, start=5)

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert action in (5, 6)
        return super().step(action - 5)


def test_an_agent_names_actions_as_the_env_does(tmp_path: Path) -> None:
    redline.register_env("my/five", lambda: StartsAtFive((10, 10, 4), np.bool_), presets={"ppo": SMALL})
    agent = redline.train("my/five", "ppo", max_steps=128, log_dir=tmp_path, monitor={"hz": 0.0}).agent()
    env = StartsAtFive((10, 10, 4), np.bool_)
    observation, _ = env.reset(seed=1)
    env.step(agent.act(observation))
    assert set(agent.act(np.stack([observation] * 8)).tolist()) <= {5, 6}


def test_a_vector_of_its_own_is_trained_on(tmp_path: Path) -> None:
    made = []

    def vector(config: EnvConfig, **lanes: Any) -> VectorEnv:
        made.append(lanes["num_envs"])
        return resolve("CartPole-v1").make_vector(config, **lanes)

    redline.register_env("my/vector", lambda: gymnasium.make("CartPole-v1"), vector=vector)
    run = redline.train("my/vector", "ppo", max_steps=256, log_dir=tmp_path, monitor={"hz": 0.0})
    assert run.resume(max_steps=512).metrics[-1]["steps"] == 512
    assert made.count(run.facts["config"]["num_envs"]) == 2
    assert run.agent().act(np.zeros(4)) in (0, 1)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"batch-size": 64}, {"batch_size": 64, "channels": [4], "stack": 2}),
        ({"network": {"name": "small"}, "env": {"size": 60}}, {"batch_size": 32, "channels": None, "stack": 2}),
        ({"network": "strided", "env": {"stack": 3}}, {"batch_size": 32, "channels": [16, 32, 32], "stack": 3}),
        ({"network": {"channels": [8]}}, {"batch_size": 32, "channels": [8], "stack": 2}),
    ],
)
def test_presets_fill_in_what_settings_leave_open_however_those_are_spelled(
    settings: dict[str, Any], expected: dict[str, Any]
) -> None:
    job = train_defaults(["--env", "my/rgb", "--algo", "ppo"], settings).job
    channels = getattr(job.algorithm.network, "channels", None)
    found = (job.algorithm.batch_size, channels and list(channels), job.env.stack)
    assert found == tuple(expected.values())
