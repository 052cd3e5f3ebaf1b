"""What every rung trains, in the same regime: Pong to measure speed, a small pixel game to see what is learnt."""

from dataclasses import dataclass

from redline.networks import Nature, Small, Torso

STACK = 4
BATCH_SIZE = 32
STEPS_PER_UPDATE = 4
SAMPLES_PER_STEP = BATCH_SIZE / STEPS_PER_UPDATE
GAMMA = 0.99
ADAM_EPS = 1.5e-4
EPSILON_END = 0.01


@dataclass(frozen=True)
class Task:
    """A game, and the numbers with which a DQN learns it."""

    env: str
    torso: Torso
    convolutions: tuple[tuple[int, int, int], ...]  # of the same torso: channels, kernel, stride
    width: int  # of its dense layer
    lr: float
    warmup_steps: int
    capacity: int  # transitions
    target_sync_steps: int
    epsilon_over_steps: int

    def target_sync_updates(self, joined_updates: int) -> int:
        """Return the updates between two copies into the target network: the same in steps, however large they are."""
        return max(1, self.target_sync_steps // (STEPS_PER_UPDATE * joined_updates))


# ε is low as soon as the warm-up is over, so that the network acts as it does in nearly all of a training
PONG = Task(
    env="PongNoFrameskip-v4",
    torso=Nature(),
    convolutions=((32, 8, 4), (64, 4, 2), (64, 3, 1)),
    width=512,
    lr=1e-4,
    warmup_steps=1_000,
    capacity=4_000,  # one memory of whole stacks for each of the first rungs, all alive at once
    target_sync_steps=4_000,
    epsilon_over_steps=1_000,
)

# departs from Pong where Pong's numbers are made for millions of steps: here a game takes 11
CATCH = Task(
    env="redline/Catch-v0",
    torso=Small(),
    convolutions=((16, 8, 4), (32, 4, 2)),
    width=256,
    lr=5e-4,
    warmup_steps=500,
    capacity=10_000,
    target_sync_steps=400,
    epsilon_over_steps=2_500,
)
