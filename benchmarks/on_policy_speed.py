"""Redline's PPO or A2C against Stable-Baselines3's on Pong, same network, envs, rollouts, updates and optimiser.

Both are measured as `peer_pairs.py` says; a window holds whole rollouts with the updates that belong to them. PPO is
8 envs × 128 steps, 4 epochs × 4 batches of 256; A2C is 16 envs × 5 steps, with torch's RMSprop on both sides.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

from arguments import at_least, make_parser
from peer_pairs import Row, add_pair_flags, judge_pairs, measure_pairs, refuse_busy_machine
from recording import Measurement, finish
from speed_setting import ON_POLICY, OnPolicySetting

WORKERS = {"redline": "on_policy_speed_redline.py", "sb3": "on_policy_speed_sb3.py"}
REQUIRED_RATIO = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, compare, record."""
    options = parse(argv)
    refuse_busy_machine("on_policy_speed", allow_busy=options.allow_busy)
    setting = replace(ON_POLICY[options.algorithm], seconds=options.seconds)
    if options.opens_at_steps is not None:
        setting = replace(setting, opens_at_steps=options.opens_at_steps)
    config, repeats = measure_pairs(WORKERS, setting, options)
    return finish(measurement(setting, config, repeats), as_json=options.json, keep=not options.no_record)


def measurement(setting: OnPolicySetting, config: Row, repeats: list[Row]) -> Measurement:
    """Return what the pairs show."""
    name = setting.algorithm
    batches = setting.steps_per_rollout // setting.batch_size
    return judge_pairs(
        f"{name}-speed-pong",
        f"{name.upper()} on Pong, Nature CNN, {setting.num_envs} envs × {setting.rollout_steps} steps, "
        f"{setting.epochs} × {batches} updates of {setting.batch_size}: Redline ÷ Stable-Baselines3",
        config,
        repeats,
        wanted_updates_per_step=setting.updates_per_step,
        required_ratio=REQUIRED_RATIO,
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--algorithm", choices=tuple(ON_POLICY), default="ppo", help="what both train")
    add_pair_flags(parser)
    parser.add_argument(
        "--opens-at-steps", type=at_least(1), default=None, help="steps before a window; about one game if not given"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
