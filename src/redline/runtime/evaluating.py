"""`redline eval`: a run's agent is played with the weights of a checkpoint; the run is only read."""

import time
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file as load_tensors

from redline.algorithms.family import Algorithm
from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig
from redline.envs.factory import env_spec
from redline.envs.vector import Progress
from redline.errors import UserError
from redline.exploration import Exploration, Greedy, Sampled
from redline.networks import Network
from redline.recordings.tracing import RecordingConfig
from redline.runs.manifest import Checkpoint
from redline.runtime.building import find_device
from redline.runtime.playing import PlayedEpisode, RequestedStop, evaluation_seed, make_player
from redline.runtime.resuming import SavedRun
from redline.runtime.roles import usable_cores

WEIGHTS = "weights.safetensors"


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
class Evaluation:
    """What was played, and how."""

    played: list[PlayedEpisode]  # in the order in which they ended
    epsilon: float
    num_envs: int
    protocol: str
    frames_per_step: int
    device: torch.device
    duration_s: float


def evaluate(
    saved: SavedRun,
    checkpoint: Checkpoint,
    config: EvaluationConfig,
    *,
    progress: Progress,
    requested_stop: RequestedStop = lambda: None,
    recording: RecordingConfig | None = None,
) -> Evaluation:
    """Play the episodes that `config` asks for; recorded, if so wished."""
    begun_s = time.monotonic()
    job = saved.job
    explore, epsilon = choose_acting(job.algorithm, saved.algorithm, config)
    device = find_device(config.device)
    num_envs, cores = min(config.num_envs, config.episodes), usable_cores()
    spec = env_spec(job.env)
    torch.set_flush_denormal(True)  # as in training
    torch.set_num_threads(cores if spec.is_image else 1)
    player = make_player(
        job,
        spec,
        device=device,
        num_envs=num_envs,
        threads=min(cores, num_envs),
        explore=explore,
        epsilon=epsilon,
        recording=recording,
    )
    load_weights(player.network, checkpoint)
    played = player.play(
        config.episodes,
        seed=evaluation_seed(job.seed, config.seed),
        progress=progress,
        requested_stop=requested_stop,
    )
    return Evaluation(
        played=played,
        epsilon=epsilon,
        num_envs=num_envs,
        protocol=describe_protocol(job.env),
        frames_per_step=spec.frames_per_step,
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


def load_weights(network: Network, checkpoint: Checkpoint) -> None:
    """Give the network the weights of a checkpoint."""
    try:
        network.take_weights(load_tensors(checkpoint.files[WEIGHTS]))
    except (KeyError, OSError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"the weights in {checkpoint.path} cannot be loaded: {reason}") from error


def describe_protocol(config: EnvConfig) -> str:
    """Say in one sentence by which rules was played."""
    rules = resolve(config.id).evaluation_rules
    return f"{rules}; whole episodes of at most {config.max_episode_frames:,} frames, unclipped rewards"
