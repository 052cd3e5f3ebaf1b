"""Redline's DQN against Stable-Baselines3's on Pong, same network, batch, envs and updates per step.

Both are measured as `peer_pairs.py` says. A busy machine is refused: other work makes OpenMP teams that spin long, as
SB3's do by default, many times slower, and flatters Redline.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence

from arguments import at_least, make_parser
from peer_pairs import Row, add_pair_flags, judge_pairs, measure_pairs, refuse_busy_machine
from recording import Measurement, finish
from speed_setting import SpeedSetting

WORKERS = {"redline": "speed_redline.py", "sb3": "speed_sb3.py"}
REQUIRED_RATIO = 1.3


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, compare, record."""
    options = parse(argv)
    refuse_busy_machine("dqn_speed", allow_busy=options.allow_busy)
    setting = SpeedSetting(
        seconds=options.seconds,
        num_envs=options.num_envs,
        replay_capacity=options.capacity,
        warmup_steps=options.warmup_steps,
        epsilon_over_steps=options.warmup_steps,
    )
    config, repeats = measure_pairs(WORKERS, setting, options)
    return finish(measurement(config, repeats), as_json=options.json, keep=not options.no_record)


def measurement(config: Row, repeats: list[Row]) -> Measurement:
    """Return what the pairs show."""
    return judge_pairs(
        "dqn-speed-pong",
        f"DQN on Pong, Nature CNN, {config['num_envs']} envs, one update of {config['batch_size']} per "
        f"{config['steps_per_update']} steps: Redline ÷ Stable-Baselines3",
        config,
        repeats,
        wanted_updates_per_step=1 / config["steps_per_update"],
        required_ratio=REQUIRED_RATIO,
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    add_pair_flags(parser)
    parser.add_argument("--num-envs", type=int, choices=(4, 8, 16, 32), default=8, help="envs of both")
    parser.add_argument("--capacity", type=at_least(1_000), default=20_000, help="transitions in the replay memory")
    parser.add_argument("--warmup-steps", type=at_least(100), default=6_000, help="steps before the first update")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
