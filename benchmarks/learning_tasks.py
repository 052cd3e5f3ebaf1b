"""What each algorithm has to learn, and where it departs from its defaults for that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.q_learning import QLearning
from redline.exploration import EpsilonGreedy

REPLAY = tuple(name for name, entry in ALGORITHMS.items() if isinstance(entry.atari.algorithm, QLearning))
EPSILON_GREEDY_REPLAY = tuple(
    name for name in REPLAY if isinstance(ALGORITHMS[name].atari.algorithm.explore, EpsilonGreedy)
)

UNUSED_SEEDS = (71, 72, 73)  # no setting was chosen with them
TRIAL_STEPS = (50_000, 100_000, 150_000, 200_000, 300_000, 400_000)  # at which trials for a recipe are compared


@dataclass(frozen=True)
class Departure:
    """Settings of some algorithms that differ from their defaults, and why; later ones win over earlier ones."""

    algorithms: tuple[str, ...]
    settings: Mapping[str, object]
    reason: str

    def row(self) -> dict[str, Any]:
        """Return it for a record."""
        return {"algorithms": self.algorithms, "settings": self.settings, "reason": self.reason}


@dataclass(frozen=True)
class LearningTask:
    """What has to be reached, and by when."""

    record: str  # name of its records
    env: str
    target_return: float
    max_steps: int
    seeds: tuple[int, ...]
    required_share: Fraction  # of the seeds
    algorithms: tuple[str, ...] = tuple(ALGORITHMS)  # that have to reach it
    settings: Mapping[str, object] = field(default_factory=dict)  # of all algorithms
    departures: Sequence[Departure] = ()
    is_as_required: bool = True  # and not made easier or harder for a trial

    def settings_of(self, algorithm: str) -> dict[str, object]:
        """Return the settings with which an algorithm is trained, keyed as on the command line."""
        found = {"--env": self.env, **self.settings}
        for departure in self.departures:
            if algorithm in departure.algorithms:
                found |= departure.settings
        return found


CATCH_DEPARTURES = (
    Departure(
        REPLAY,
        {
            "--warmup-steps": 2_000,
            "--replay.capacity": 20_000,
            "--target-sync-updates": 200,
            "--optimizer.lr": 2.5e-4,
        },
        "Atari's are made for millions of steps: here a game takes 11 steps, and all is over after 150,000",
    ),
    Departure(
        EPSILON_GREEDY_REPLAY,
        {"--explore.epsilon.over-steps": 10_000},
        "with Atari's 250,000 steps the agent would still act at random when the task is over",
    ),
    Departure(
        ("pqn",),
        {"--explore.epsilon.over-steps": 20_000},
        "as for the replay algorithms; later, because nothing is learnt from twice but within a rollout",
    ),
)

TASKS: Mapping[str, LearningTask] = {
    "cartpole": LearningTask(
        record="algorithms-cartpole-v1",
        env="CartPole-v1",
        target_return=400.0,
        max_steps=150_000,
        seeds=UNUSED_SEEDS,
        required_share=Fraction(1),
    ),
    "acrobot": LearningTask(
        record="algorithms-acrobot-v1",
        env="Acrobot-v1",
        target_return=-120.0,
        max_steps=150_000,
        seeds=UNUSED_SEEDS,
        required_share=Fraction(1),
    ),
    "lunarlander": LearningTask(
        record="algorithms-lunarlander-v3",
        env="LunarLander-v3",
        target_return=200.0,
        max_steps=500_000,
        seeds=UNUSED_SEEDS,
        required_share=Fraction(2, 3),
        algorithms=(*REPLAY, "ppo"),
    ),
    "catch": LearningTask(
        record="algorithms-catch",
        env="redline/Catch-v0",
        target_return=0.9,  # the optimum is 1
        max_steps=150_000,
        seeds=(1,),
        required_share=Fraction(1),
        settings={"--network": "small"},
        departures=CATCH_DEPARTURES,
    ),
}
