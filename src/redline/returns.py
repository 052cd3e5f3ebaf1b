"""What a transition is worth: discounting, the steps a return spans, and reward clipping."""

from dataclasses import dataclass

from redline.errors import UserError


@dataclass(frozen=True)
class NStep:
    """Sum `n` discounted rewards, then bootstrap; fewer where the return or the episode ends."""

    n: int = 1
    """Steps that a return spans before it bootstraps."""
    gamma: float = 0.99
    """Discount per step."""
    clip_rewards: bool = True
    """Learn from the reward's sign-like value in [−1, 1]; scores are always reported unclipped."""

    def __post_init__(self) -> None:
        if not 1 <= self.n <= 64:
            raise UserError(f"returns.n is {self.n}, but a return spans 1 to 64 steps")
        if not 0.0 <= self.gamma <= 1.0:
            raise UserError(f"returns.gamma is {self.gamma}, but a discount lies between 0 and 1")
