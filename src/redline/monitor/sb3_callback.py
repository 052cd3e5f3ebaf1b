"""A Stable-Baselines3 callback that records the hardware while a model learns.

With `model.learn(100_000, callback=MonitorCallback("out"))`, `redline watch` and `redline report` can read the folder,
and the model's own logger gets the means of each rollout under `hardware/…`.
"""

from __future__ import annotations

import re
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from redline.monitor.gym_wrappers import EpisodeLog, Out
from redline.monitor.sampling import DEFAULT_HZ, check_hz

MIN_LOG_INTERVAL_S = 0.1  # a rollout of an off-policy algorithm may be four steps long
# the other names go to files and curves only: the printed table would be pages long
IN_TABLE = re.compile(r"cpu_cores_used|rss_bytes|gpus\..*\.(utilisation_percent|power_w)")


class MonitorCallback(BaseCallback):
    """Records this process into the folder `out` while `learn` runs.

    Episodes come from the envs' `Monitor`, which SB3 puts around the envs that it makes. `out` may also be what
    `redline.monitor.record` returned: that recording continues when learning ends.
    """

    def __init__(self, out: Out, hz: float = DEFAULT_HZ) -> None:
        super().__init__()
        self._out = out
        self._hz = check_hz(hz)
        self._log: EpisodeLog | None = None
        self._begun_unix_s: list[float] = []  # for each env
        self._logged_unix_s = 0.0

    def _on_training_start(self) -> None:
        self.close()
        self._log = EpisodeLog(self._out, hz=self._hz)
        self._logged_unix_s = self._log.now()
        self._begun_unix_s = [self._logged_unix_s] * self.training_env.num_envs

    def _on_step(self) -> bool:
        log = self._log
        if log is None:
            return True
        for lane, info in enumerate(self.locals["infos"]):
            episode: dict[str, Any] | None = info.get("episode")
            if episode is not None:
                log.add(
                    begun_unix_s=self._begun_unix_s[lane],
                    total_reward=float(episode["r"]),
                    length_steps=int(episode["l"]),
                    steps=self.num_timesteps,
                    lane=lane,
                    is_truncated=bool(info.get("TimeLimit.truncated", False)),
                )
                self._begun_unix_s[lane] = log.now()
        return True

    def _on_rollout_end(self) -> None:
        log = self._log
        if log is None or (now := log.now()) < self._logged_unix_s + MIN_LOG_INTERVAL_S:
            return
        for name, value in log.samples.means(self._logged_unix_s, now).items():
            self.logger.record(f"hardware/{name}", value, exclude=None if IN_TABLE.fullmatch(name) else "stdout")
        self._logged_unix_s = now
        log.samples.forget_before(min(now, *self._begun_unix_s))

    def _on_training_end(self) -> None:
        self.close()

    def close(self) -> None:
        """End the recording, for instance after an interrupted `learn`; closing twice is harmless."""
        if self._log is not None:
            self._log.close()
            self._log = None
