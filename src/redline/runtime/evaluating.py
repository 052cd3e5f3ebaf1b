"""Evaluation: whole episodes, unclipped, with the weights of a checkpoint, in games that training never saw."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file as load_tensors

from redline.algorithms.family import Algorithm
from redline.envs import catalog as env_catalog
from redline.envs.config import EnvConfig
from redline.envs.factory import make_vector_env
from redline.envs.vector import Progress, VectorEnv
from redline.errors import UserError
from redline.exploration import Exploration, Greedy, Sampled
from redline.networks import Network
from redline.networks.cores import mask_state
from redline.runs.errors import DamagedError
from redline.runs.manifest import (
    CHECKPOINTS,
    Checkpoint,
    checkpoint_folders,
    load_checkpoint,
    newest_valid,
    read_manifest,
    steps_of,
)
from redline.runtime.actor import Actor
from redline.runtime.building import find_device
from redline.runtime.randomness import Purpose, stream
from redline.runtime.resuming import SavedRun
from redline.runtime.threads import Threads
from redline.types import EnvSpec

NEWEST, BEST = "newest", "best"
WEIGHTS = "weights.safetensors"
EVALUATION = 0x6576616C  # keeps the seeds apart from those of training, and is part of them: never change it


@dataclass(frozen=True)
class EvaluationConfig:
    """How an agent is evaluated."""

    episodes: int = 30
    """Whole episodes to play."""
    seed: int = 0
    """Seed of the games and of random actions; the run's own seed is part of both."""
    epsilon: float | None = None
    """Share of random actions; as the algorithm's paper evaluates if not given."""
    num_envs: int = 8
    """Environments played side by side, never more than there are episodes."""
    sample: bool = False
    """Draw actions from the policy of a policy-gradient run instead of taking its likeliest."""
    device: str = "auto"
    """Where the network computes: auto, cpu, cuda or cuda:i."""

    def __post_init__(self) -> None:
        if not 1 <= self.episodes <= 10_000:
            raise UserError(f"episodes is {self.episodes}: use 1 to 10_000")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"seed is {self.seed}: use 0 to {2**31 - 1:_}")
        if self.epsilon is not None and not 0.0 <= self.epsilon <= 1.0:
            raise UserError(f"epsilon is {self.epsilon}, but a probability lies between 0 and 1")
        if not 1 <= self.num_envs <= 1024:
            raise UserError(f"num-envs is {self.num_envs}: use 1 to 1024")
        if self.sample and self.epsilon is not None:
            raise UserError("sample and epsilon are two ways to act: use one of them")


@dataclass(frozen=True)
class PlayedEpisode:
    """One whole episode."""

    total_reward: float  # unclipped
    length_steps: int
    is_truncated: bool  # cut by a limit: of frames, or of the env's own
    seed: int  # key seed of its game


@dataclass(frozen=True)
class Evaluation:
    """What was played, and how."""

    episodes: list[PlayedEpisode]  # in the order in which they ended
    epsilon: float
    num_envs: int
    protocol: str
    frames_per_step: int
    device: torch.device
    duration_s: float


class StoppedWhileEvaluatingError(Exception):
    """A stop was requested before all episodes had ended."""


def find_checkpoint(run: Path, which: str) -> Checkpoint:
    """Load the newest valid checkpoint, the best one, or the one of so many steps; the run is only read."""
    if which == NEWEST:
        return newest_valid(run, with_replay=False)
    folders = {steps_of(folder): folder for folder in checkpoint_folders(run / CHECKPOINTS)}
    if which == BEST:
        return load_checkpoint(_best_folder(run, list(folders.values())), with_replay=False)
    digits = which.replace(",", "").replace("_", "")
    if not (digits.isascii() and digits.isdigit()):
        raise UserError(
            f"checkpoint is {which!r}: use {NEWEST}, {BEST} or its steps, such as {max(folders, default=0)}"
        )
    if int(digits) not in folders:
        known = ", ".join(str(steps) for steps in sorted(folders)) or "none"
        raise UserError(f"{run} has no checkpoint {int(digits)}: it has {known}")
    return load_checkpoint(folders[int(digits)], with_replay=False)


def _best_folder(run: Path, folders: list[Path]) -> Path:
    scores: dict[Path, float] = {}
    for folder in folders:
        try:
            score = read_manifest(folder)["score"]
        except DamagedError:
            continue
        if score is not None:
            scores[folder] = float(score)
    if not scores:
        raise UserError(f"no checkpoint of {run} has a score, which takes 100 episodes: use --checkpoint {NEWEST}")
    return max(scores, key=lambda folder: (scores[folder], steps_of(folder)))


def evaluate(
    saved: SavedRun,
    checkpoint: Checkpoint,
    config: EvaluationConfig,
    *,
    progress: Progress,
    requested_stop: Callable[[], str | None] = lambda: None,
) -> Evaluation:
    """Play the episodes that `config` asks for; the run is only read."""
    begun_s = time.monotonic()
    algorithm = saved.job.algorithm
    explore, epsilon = choose_acting(algorithm, saved.algorithm, config)
    device = find_device(config.device)
    seed = evaluation_seed(saved.job.seed, config.seed)
    num_envs = min(config.num_envs, config.episodes)
    threads = Threads().settle(is_image=True, num_envs=num_envs)
    env = make_vector_env(saved.job.env, num_envs=num_envs, seed=seed, threads=threads.envs, key_interval_steps=0)
    try:
        torch.set_flush_denormal(True)  # as in training
        torch.set_num_threads(threads.learner if env.spec.is_image else 1)
        player = Player(
            env,
            algorithm=algorithm,
            network=load_network(algorithm, env.spec, checkpoint).to(device),
            explore=explore,
            epsilon=epsilon,
            seed=seed,
        )
        episodes = player.play(config.episodes, progress=progress, requested_stop=requested_stop)
    finally:
        env.close()
    return Evaluation(
        episodes=episodes,
        epsilon=epsilon,
        num_envs=num_envs,
        protocol=describe_protocol(env, saved.job.env),
        frames_per_step=env.spec.frames_per_step,
        device=device,
        duration_s=time.monotonic() - begun_s,
    )


def choose_acting(algorithm: Algorithm, name: str, config: EvaluationConfig) -> tuple[Exploration, float]:
    """Return how actions are chosen, and ε: greedily, unless draws from a policy are asked for."""
    if config.sample:
        if not isinstance(algorithm.explore, Sampled):
            raise UserError(f"{name} learns values, which are no policy to draw from: leave --sample away")
        return Sampled(), 0.0
    return Greedy(), algorithm.explore.evaluation_epsilon() if config.epsilon is None else config.epsilon


def evaluation_seed(run_seed: int, seed: int) -> int:
    """Return the seed of an evaluation: never one by which the run trains, the same again for the same two."""
    return int(np.random.SeedSequence([run_seed, EVALUATION, seed]).generate_state(1)[0] >> 1)


def load_network(algorithm: Algorithm, spec: EnvSpec, checkpoint: Checkpoint) -> Network:
    """Return the network with the checkpoint's weights, its noise off."""
    network = algorithm.build_network(spec, torch.Generator()).requires_grad_(False)
    try:
        network.load_state_dict(load_tensors(checkpoint.files[WEIGHTS]))
    except (KeyError, OSError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the weights in {checkpoint.path} cannot be loaded: {reason}") from error
    network.silence()
    return network


def describe_protocol(env: VectorEnv, config: EnvConfig) -> str:
    """Say in one sentence by which rules was played."""
    kind = env_catalog.resolve(config.id)
    rules = env.protocol
    if kind.protocol is not None:  # a life lost ends the return in training at most
        rules = f"{kind.game} by {replace(kind.protocol, life_loss_ends_return=False)}"
    return f"{rules}; whole episodes of at most {config.max_episode_frames:,} frames, unclipped rewards"


class Player:
    """Plays whole episodes on all lanes of a vector env."""

    def __init__(
        self,
        env: VectorEnv,
        *,
        algorithm: Algorithm,
        network: Network,
        explore: Exploration,
        epsilon: float,
        seed: int,
    ) -> None:
        self.env = env
        self._algorithm = algorithm
        self._network = network
        self._explore = explore
        self._epsilon = epsilon
        self._seed = seed
        self._device = next(network.parameters()).device

    def play(
        self, num_episodes: int, *, progress: Progress, requested_stop: Callable[[], str | None]
    ) -> list[PlayedEpisode]:
        """Play exactly so many episodes from their first step to their last."""
        # Each lane plays a number fixed beforehand. The first so many to end, whatever their lane, would be the short
        # ones: a lane that plays long episodes would be stopped in the middle of one while others count many.
        lanes = np.arange(self.env.num_envs)
        left = num_episodes // len(lanes) + (lanes < num_episodes % len(lanes))  # [N]
        actor = Actor(self.env)
        actor.begin(self.env.reset())
        state = torch.zeros(len(lanes), self._network.state_width, device=self._device)
        episodes: list[PlayedEpisode] = []
        vector_step = 0
        while left.any():
            if reason := requested_stop():
                raise StoppedWhileEvaluatingError(f"{reason} after {len(episodes)} of {num_episodes} episodes")
            rng = stream(self._seed, Purpose.EVALUATE, vector_step)
            with torch.no_grad():
                out, state = self._network.step(torch.from_numpy(actor.obs).to(self._device), state)
                preferences = self._algorithm.preferences(out).cpu().numpy()  # [N, A]
            self.env.send(self._explore.choose(preferences, epsilon=self._epsilon, rng=rng))
            step = self.env.recv()
            state = mask_state(state, torch.from_numpy(step.ended).to(self._device))
            for ended in actor.observe(step):
                if left[ended.lane]:
                    left[ended.lane] -= 1
                    cut = bool(step.truncated[ended.lane] and not step.terminated[ended.lane])
                    episodes.append(PlayedEpisode(ended.total_reward, ended.length_steps, cut, ended.key_seed))
                    progress(len(episodes) / num_episodes)
            vector_step += 1
        return episodes
