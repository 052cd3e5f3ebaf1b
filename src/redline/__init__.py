"""Redline trains deep-RL agents on Atari at the limit of the machine; importing it loads nothing heavy."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redline.api import (
        Agent,
        Run,
        RunStart,
        Sink,
        Suite,
        Training,
        UserError,
        load,
        register_algorithm,
        register_env,
        register_part,
        train,
        training,
    )

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Run",
    "RunStart",
    "Sink",
    "Suite",
    "Training",
    "UserError",
    "__version__",
    "load",
    "register_algorithm",
    "register_env",
    "register_part",
    "train",
    "training",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for: PyTorch and all that it brings along takes seconds."""
    if name in __all__:
        return getattr(import_module("redline.api"), name)
    raise AttributeError(f"module 'redline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
