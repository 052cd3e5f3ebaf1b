"""Evaluation: how episodes are played without exploration, how many, and which games."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.named.dqn import DQN_CLASSIC
from redline.algorithms.named.noisy_dqn import NOISY_DQN
from redline.algorithms.q_learning import QLearning
from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.envs.vector import reset_seed
from redline.episodes.tracing import RecordingConfig
from redline.exploration import Greedy
from redline.networks import Mlp, Noisy
from redline.runtime.actor import Episode, Player, StoppedWhileEvaluatingError
from redline.runtime.config import EvaluatorConfig, Job, Limits
from redline.runtime.evaluation import (
    Evaluator,
    NumberedEvaluation,
    evaluation_seed,
    greedy_seed,
    make_player,
)
from redline.types import EnvSpec, VectorStep

SPEC = EnvSpec(name="stub", frame_shape=(2,), frame_dtype="float32", stack=1, num_actions=2, frames_per_step=1)
PICTURES = EnvSpec("stub", (84, 84), "uint8", stack=4, num_actions=6, frames_per_step=4)
CARTPOLE = EnvConfig("CartPole-v1", stack=1, skip=1)
CPU = torch.device("cpu")


class LanesOfUnequalLength:
    """A vector env whose lanes' episodes last 1, 2, 3 … steps; each pays 5 and costs a life at every step."""

    spec = SPEC
    protocol = "stub"
    is_closed = False

    def __init__(self, lengths: list[int]) -> None:
        self.num_envs = len(lengths)
        self.reset_seed = np.arange(self.num_envs)
        self.steps_since_seed = np.zeros(self.num_envs, np.int64)
        self._lengths = np.array(lengths)
        self._played = np.zeros(self.num_envs, np.int64)
        self.frames = np.zeros((self.num_envs, 2), np.float32)

    def reset(self) -> np.ndarray:
        return self.frames

    def send(self, actions: np.ndarray) -> None:
        self._played += 1

    def recv(self) -> VectorStep:
        ended = self._played >= self._lengths
        self._played[ended] = 0
        nothing = np.zeros(self.num_envs, np.bool_)
        reward = np.full(self.num_envs, 5.0, np.float32)
        return VectorStep(self.frames, reward, ended, nothing, ~ended, self.frames)

    def close(self) -> None:
        self.is_closed = True


class CountingNetwork:
    """Remembers how often it was asked in this episode, and keeps what it was given to remember."""

    state_width = 1
    is_noisy = False

    def __init__(self) -> None:
        self.seen: list[list[float]] = []

    def parameters(self) -> Any:
        return iter([torch.zeros(1)])

    def silence(self) -> None:
        pass

    def step(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen.append(state[:, 0].tolist())
        return torch.zeros(len(obs), 2, 1), state + 1.0


@dataclass
class Table:
    """A player on lanes of given lengths, and the envs that it asked for."""

    lengths: list[int]
    network: Any = None
    envs: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        algorithm = QLearning(network=Mlp(widths=(8,)))
        network = self.network or algorithm.build_network(SPEC, torch.Generator())
        self.player = Player(self._open, algorithm=algorithm, network=network, explore=Greedy(), epsilon=0.0)

    def _open(self, seed: int) -> Any:
        self.envs.append(LanesOfUnequalLength(self.lengths))
        return self.envs[-1]

    def play(self, num_episodes: int, requested_stop: Callable[[], str | None] = lambda: None) -> list[Episode]:
        return self.player.play(num_episodes, seed=0, requested_stop=requested_stop)


def lengths_of(played: list[Episode]) -> list[int]:
    return sorted(one.length_steps for one in played)


def test_short_episodes_do_not_crowd_out_long_ones() -> None:
    assert lengths_of(Table([1, 10]).play(4)) == [1, 1, 10, 10]


def test_what_is_left_over_is_shared_out_among_the_first_lanes() -> None:
    assert lengths_of(Table([2, 3, 4]).play(5)) == [2, 2, 3, 3, 4]


def test_a_life_lost_ends_nothing_and_rewards_are_not_clipped() -> None:
    played = Table([4]).play(2)
    assert [(one.total_reward, one.length_steps) for one in played] == [(20.0, 4), (20.0, 4)]
    assert not any(one.is_truncated for one in played)


def test_what_a_network_remembers_is_carried_and_ends_with_the_episode() -> None:
    network = CountingNetwork()
    Table([2, 3], network).play(4)
    assert network.seen == [[0, 0], [1, 1], [0, 2], [1, 0], [0, 1], [1, 2]]


def test_playing_turns_the_noise_off() -> None:
    network = QLearning(network=Mlp(widths=(8,)), layers=Noisy()).build_network(SPEC, torch.Generator())
    obs = torch.ones(1, 1, 2)
    silent = network(obs)
    network.resample(np.random.default_rng(0))
    assert not torch.equal(network(obs), silent)
    Table([2], network).play(3)
    assert torch.equal(network(obs), silent)


def test_a_stop_is_asked_for_before_every_vector_step_and_the_env_is_closed() -> None:
    table, asked = Table([4, 4]), []

    def requested_stop() -> str | None:
        asked.append(None)
        return "SIGINT" if len(asked) == 7 else None

    with pytest.raises(StoppedWhileEvaluatingError, match="SIGINT after 2 of 8 episodes"):
        table.play(8, requested_stop)
    assert [env.is_closed for env in table.envs] == [True]
    table.play(2)
    assert [env.is_closed for env in table.envs] == [True, True]  # each play has an env of its own


def play_cartpole(player: Player, *, seed: int, episodes: int = 6) -> list[tuple[float, int, int]]:
    played = player.play(episodes, seed=seed, requested_stop=lambda: None)
    return [(one.total_reward, one.reset_seed, one.seed_offset_steps) for one in played]


def test_the_seed_decides_the_games_and_weights_may_be_replaced_between_two_plays() -> None:
    job = Job(env=CARTPOLE, algorithm=ALGORITHMS["dqn"].classic.algorithm)
    spec = env_spec(CARTPOLE)
    player = make_player(job, spec, device=CPU, num_envs=2, threads=1)
    other = job.algorithm.build_network(spec, torch.Generator().manual_seed(1)).state_dict()
    mine = {key: value.clone() for key, value in player.network.state_dict().items()}
    first, elsewhere, again = (play_cartpole(player, seed=seed) for seed in (3, 4, 3))
    assert first == again
    assert not {key for _, key, _ in first} & {key for _, key, _ in elsewhere}
    assert all(offset == 0 for _, _, offset in first)
    player.network.load_state_dict(other)
    learnt = play_cartpole(player, seed=3)
    assert sorted(key for _, key, _ in learnt) == sorted(key for _, key, _ in first)
    assert learnt != first
    player.network.load_state_dict(mine)
    assert play_cartpole(player, seed=3) == first


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_player(name: str) -> None:
    job = Job(env=CARTPOLE, algorithm=ALGORITHMS[name].classic.algorithm)
    player = make_player(job, env_spec(CARTPOLE), device=CPU, num_envs=2, threads=1)
    assert len(play_cartpole(player, seed=1, episodes=3)) == 3


def test_a_player_acts_greedily_with_the_epsilon_of_the_paper() -> None:
    params = make_player(Job(), PICTURES, device=CPU, num_envs=1, threads=1).params
    assert (params.explore, params.epsilon, params.is_silent) == (Greedy(), 0.05, True)
    noisy = make_player(Job(algorithm=NOISY_DQN), PICTURES, device=CPU, num_envs=1, threads=1).params
    assert noisy.epsilon == 0.0


def test_each_evaluation_has_games_of_its_own_that_neither_training_nor_eval_plays() -> None:
    seeds = [greedy_seed(run_seed, number) for run_seed in (0, 1, 2) for number in range(1, 200)]
    seeds += [evaluation_seed(run_seed, seed) for run_seed in (0, 1, 2) for seed in range(200)]
    assert len(set(seeds)) == len(seeds)
    assert greedy_seed(1, 7) == greedy_seed(1, 7)
    of_training = {reset_seed(1, lane, number) for lane in range(8) for number in range(500)}
    of_evaluations = {reset_seed(greedy_seed(1, k), 0, number) for k in range(1, 100) for number in range(5)}
    assert not of_training & of_evaluations


@pytest.mark.parametrize(("record", "expected"), [("all", 8), ("4", 2), ("off", 0)])
def test_of_the_episodes_that_count_as_many_are_recorded_as_asked_for(record: str, expected: int) -> None:
    """Lanes that have played their share go on, and what they play then is not counted."""
    job = Job(env=CARTPOLE, algorithm=ALGORITHMS["dqn"].classic.algorithm)
    recording = RecordingConfig(record=record)
    player = make_player(job, env_spec(CARTPOLE), device=CPU, num_envs=4, threads=1, recording=recording)
    for seed in range(5):
        played = player.play(8, seed=seed, requested_stop=lambda: None)
        assert sum(one.trace is not None for one in played) == expected


def evaluator_of(job: Job, finished: list[NumberedEvaluation]) -> Evaluator:
    return Evaluator(job, env_spec(job.env), evaluations=6, finished=finished.append)


def test_an_evaluation_that_reaches_the_target_is_followed_by_one_that_confirms_it() -> None:
    finished: list[NumberedEvaluation] = []
    job = Job(env=CARTPOLE, algorithm=DQN_CLASSIC, seed=3, limits=Limits(target_eval_return=5.0))
    evaluator = evaluator_of(job, finished)
    evaluator.evaluate(400, lambda: None)
    assert [(one.number, len(one.episodes), one.is_confirmation) for one in finished] == [(7, 10, False), (8, 30, True)]
    assert [one.weights_steps for one in finished] == [400, 400]
    games = {reset_seed(greedy_seed(3, 7), lane, 0) for lane in range(10)}
    assert {episode.reset_seed for episode in finished[0].episodes} == games
    evaluator_of(replace(job, limits=Limits(target_eval_return=501.0)), finished).evaluate(400, lambda: None)
    assert [(one.number, one.is_confirmation) for one in finished[2:]] == [(7, False)]
    assert finished[2].mean_return == finished[0].mean_return


def test_a_number_whose_games_were_stopped_is_given_again() -> None:
    finished: list[NumberedEvaluation] = []
    evaluator = evaluator_of(Job(env=CARTPOLE, algorithm=DQN_CLASSIC), finished)
    with pytest.raises(StoppedWhileEvaluatingError, match="SIGINT after 0 of 5 episodes"):
        evaluator.evaluate(400, lambda: "SIGINT")
    assert finished == []
    evaluator.evaluate(404, lambda: None)
    assert [(one.number, one.weights_steps, len(one.episodes)) for one in finished] == [(7, 404, 5)]


@pytest.mark.parametrize(
    ("topology", "target", "expected"), [("inline", None, 2), ("async", 5.0, 2), ("inline", 5.0, 10)]
)
def test_an_inline_evaluation_with_a_target_has_an_env_for_each_episode(
    topology: Any, target: float | None, expected: int
) -> None:
    job = Job(env=CARTPOLE, algorithm=DQN_CLASSIC, topology=topology, limits=Limits(target_eval_return=target))
    job = replace(job, evaluator=EvaluatorConfig(envs=2))
    assert evaluator_of(job, []).num_envs == expected
