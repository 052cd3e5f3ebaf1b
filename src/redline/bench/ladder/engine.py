"""Redline's own engine as a rung: the job that trains the same task, in this process or in processes of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from redline.algorithms.named.dqn import DQN
from redline.algorithms.optimizers import Adam
from redline.bench.ladder.plain_loop import LoopParts
from redline.bench.ladder.replay_parts import FramesOnce
from redline.bench.ladder.task import ADAM_EPS, BATCH_SIZE, EPSILON_END, GAMMA, SAMPLES_PER_STEP, STACK, Task
from redline.envs.config import EnvConfig
from redline.errors import kind_name
from redline.experience import ReplayConfig
from redline.exploration import EpsilonGreedy
from redline.returns import NStep
from redline.runtime.building import build_trainer
from redline.runtime.config import Job
from redline.runtime.resolve import ResolvedJob, resolve_job
from redline.runtime.training import Trainer
from redline.schedules import Linear

FRAME_BYTES = 84 * 84  # uncompressed: with so many for each transition nothing has to be measured first
SPARE_BYTES = 16 * 1024**2


def settled_job(parts: LoopParts, task: Task, *, seed: int) -> ResolvedJob:
    """Return the job that does in Redline's engine what `parts` do in the plain loop."""
    algorithm = replace(
        DQN,
        network=task.torso,
        returns=NStep(gamma=GAMMA),
        explore=EpsilonGreedy(Linear(1.0, EPSILON_END, over_steps=task.epsilon_over_steps)),
        optimizer=Adam(lr=task.lr, eps=ADAM_EPS),
        replay=_replay_of(parts, task),
        batch_size=BATCH_SIZE * parts.joined_updates,
        samples_per_step=SAMPLES_PER_STEP,
        warmup_steps=task.warmup_steps,
        target_sync_updates=task.target_sync_updates(parts.joined_updates),
    )
    env = EnvConfig(id=task.env, stack=STACK)
    device = str(parts.device.device)
    return resolve_job(Job(env=env, algorithm=algorithm, num_envs=parts.env.num_envs, seed=seed, device=device))


def make_trainer(settled: ResolvedJob) -> Trainer:
    """Return the real trainer, without a run directory: nothing is recorded, no checkpoint is taken."""
    trainer = build_trainer(settled, env_seed=settled.job.seed)
    trainer.begin()
    return trainer


def train_flags(parts: LoopParts, task: Task, *, seed: int, log_dir: Path) -> list[str]:
    """Return the same job as flags of `redline train`; checkpoints only at the start and the end, no monitor."""
    replay = _replay_of(parts, task)
    flags = {
        "env": task.env,
        "algo": "dqn",
        "network": kind_name(type(task.torso)),
        "num-envs": parts.env.num_envs,
        "device": parts.device.device,
        "batch-size": BATCH_SIZE * parts.joined_updates,
        "samples-per-step": SAMPLES_PER_STEP,
        "warmup-steps": task.warmup_steps,
        "target-sync-updates": task.target_sync_updates(parts.joined_updates),
        "returns.gamma": GAMMA,
        "explore.epsilon.end": EPSILON_END,
        "explore.epsilon.over-steps": task.epsilon_over_steps,
        "optimizer.lr": task.lr,
        "optimizer.eps": ADAM_EPS,
        "replay.capacity": replay.capacity,
        "replay.codec": replay.codec,
        "replay.prefetch": replay.prefetch,
        "replay.bytes": replay.bytes,
        "seed": seed,
        "log-dir": log_dir,
        "checkpoint-minutes": 1_000_000.0,
        "monitor.hz": 0,
    }
    return [text for name, value in flags.items() for text in (f"--{name}", str(value))]


def _replay_of(parts: LoopParts, task: Task) -> ReplayConfig:
    replay = parts.replay if isinstance(parts.replay, FramesOnce) else FramesOnce()
    return ReplayConfig(
        capacity=task.capacity,
        codec=replay.codec,
        bytes=task.capacity * FRAME_BYTES + SPARE_BYTES,
        prefetch=replay.prefetch,
    )
