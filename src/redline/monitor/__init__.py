"""A hardware monitor for any process that trains, usable without torch and without the rest of Redline.

`with record("out/"):` watches this process and its children from a separate process. `MonitorEnv`, `MonitorVectorEnv`
(Gymnasium) and `MonitorCallback` (Stable-Baselines3) add means per episode; their dependencies are imported on use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from redline.monitor.attaching import AttachedRecording, record

if TYPE_CHECKING:
    from redline.monitor.gym_wrappers import MonitorEnv, MonitorVectorEnv
    from redline.monitor.sb3_callback import MonitorCallback

__all__ = ["AttachedRecording", "MonitorCallback", "MonitorEnv", "MonitorVectorEnv", "record"]

_HOMES = {
    "MonitorEnv": "redline.monitor.gym_wrappers",
    "MonitorVectorEnv": "redline.monitor.gym_wrappers",
    "MonitorCallback": "redline.monitor.sb3_callback",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
