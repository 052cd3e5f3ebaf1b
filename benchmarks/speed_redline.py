"""Worker of dqn_speed.py: trains with Redline through its own runtime and prints what the window saw.

The whole session runs, with records, metrics and curves; only the checkpoints at start and end lie outside the window.
"""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from episode_means import read_episodes
from recording import say
from redline.algorithms.named.dqn import DQN
from redline.algorithms.optimizers import Adam
from redline.envs.config import EnvConfig
from redline.exploration import EpsilonGreedy
from redline.runtime.building import settle
from redline.runtime.gauges import Gauges
from redline.runtime.job import Job
from redline.runtime.starting import start_inline
from redline.schedules import Linear
from speed_setting import SpeedSetting, setting_from_argv
from steady_window import SteadyWindow


class Notes:
    """Passes on what the run says, and shows no gauges."""

    def note(self, text: str) -> None:
        """Print a line."""
        say(f"  {text}")

    def show(self, gauges: Gauges) -> None:
        """Show nothing: the other contender has no panel either."""


def make_job(setting: SpeedSetting, log_dir: Path) -> Job:
    """Return the setting as a job."""
    epsilon = Linear(1.0, setting.epsilon_end, over_steps=setting.epsilon_over_steps)
    algorithm = replace(
        DQN,
        returns=replace(DQN.returns, gamma=setting.gamma),
        explore=EpsilonGreedy(epsilon),
        optimizer=Adam(lr=setting.learning_rate, eps=setting.adam_eps),
        replay=replace(
            DQN.replay,
            capacity=setting.replay_capacity,
            codec=setting.replay_codec,
            prefetch=setting.replay_prefetch,
            path=None if setting.replay_path is None else Path(setting.replay_path),
        ),
        batch_size=setting.batch_size,
        samples_per_step=setting.batch_size / setting.steps_per_update,
        warmup_steps=setting.warmup_steps,
        target_sync_updates=setting.target_sync_steps // setting.steps_per_update,
    )
    return Job(
        env=EnvConfig(id=setting.env),
        algorithm=algorithm,
        num_envs=setting.num_envs,
        seed=setting.seed,
        device="cpu",
        log_dir=log_dir,
    )


def watch(job: Job, algorithm: str, window: SteadyWindow) -> None:
    """Train until the window closes, and tell it what each episode brought."""
    with start_inline(settle(job), algorithm, Notes()) as session:
        counters = session.trainer.counters

        def stop_when_closed() -> str | None:
            return "window closed" if window.read(steps=counters.steps, updates=counters.updates) else None

        outcome = session.train(stop_when_closed)
    first_step = window.first.steps if window.first else 0
    for row in read_episodes(outcome.run):
        returns = window.returns_before if row["steps"] <= first_step else window.returns_in_window
        returns.append(row["return"])


def main() -> None:
    """Train DQN and print what its window saw."""
    setting = setting_from_argv(SpeedSetting)
    window = SteadyWindow(setting.seconds, setting.opens_at_steps)
    with tempfile.TemporaryDirectory() as folder:
        watch(make_job(setting, Path(folder)), "dqn", window)
    print(json.dumps(window.row()))


if __name__ == "__main__":
    main()
