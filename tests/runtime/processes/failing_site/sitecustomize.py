"""Run first by every Python process that has this folder in PYTHONPATH: makes the envs of the tests known.

Redline takes no id that names a module, and Gymnasium has no other way to know an env by itself.
"""

import sys


class RegisterFirst:
    """Registers the envs just before Redline looks at what Gymnasium knows."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "redline.envs.catalog":
            import gymnasium

            import probes

            probes.register()
            gymnasium.register("test/Failing-v0", entry_point="failing_env:Failing", max_episode_steps=50)


sys.meta_path.insert(0, RegisterFirst())
