"""How well do trained agents play Pong? Greedy evaluations of run directories, finished or still running."""

import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arguments import at_least, make_parser
from episode_means import as_text
from recording import Measurement, finish, say
from redline.algorithms.catalog import ALGORITHMS, PARTS
from redline.algorithms.q_learning import QLearning
from redline.cli.flags import default_job, with_parts
from redline.errors import UserError
from redline.records import Row, read_records
from redline.runs.directory import read_run_json
from redline.runtime.config import flatten, to_settings
from redline_process import run_redline

REQUIRED_MEAN = 10.0
# paths of the machine, and what Redline chooses by itself
NOT_SETTINGS = (
    *("log_dir", "replay.path", "replay.bytes", "learner.threads", "actor.threads", "actor.envs"),
    *("learner.device", "actor.device", "evaluator.device", "evaluator.every_minutes"),
)


def changed_settings(facts: Row) -> dict[str, Any]:
    """Return the settings of a run that differ from its algorithm's defaults, by dotted key."""
    algorithm, config = facts["algorithm"], facts["config"]
    parts = {field: config[field]["name"] for field in PARTS if field in config}
    plain = default_job(algorithm, config["env"]["id"])
    own = dict(flatten(to_settings(plain)))
    of_parts = dict(flatten(to_settings(with_parts(plain, parts, algorithm))))
    return {
        key: value
        for key, value in flatten(config)
        if key not in NOT_SETTINGS
        and not key.endswith(".name")
        and value != (own if key in parts else of_parts).get(key)
    }


def typed(settings: dict[str, Any]) -> str:
    """Return settings as flags of `redline train`."""
    return " ".join(_flag(key.replace("_", "-"), value) for key, value in settings.items())


def _flag(key: str, value: object) -> str:
    if isinstance(value, bool):
        part, dot, name = key.rpartition(".")
        return f"--{key}" if value else f"--{part}{dot}no-{name}"
    return f"--{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"


def minutes_until(metrics: Sequence[Row], steps: int) -> float | None:
    """Return the minutes of training that a checkpoint after `steps` took."""
    times_s = [row["time_s"] for row in metrics if row["steps"] <= steps]
    return times_s[-1] / 60 if times_s else None


def evaluate(run: Path, *, episodes: int) -> Row:
    """Let a run's agent play and return what it reached, and how it was trained."""
    facts = read_run_json(run)
    command = ["eval", str(run), "--episodes", str(episodes)]
    with tempfile.TemporaryDirectory() as folder:
        greedy = run_redline([*command, "--epsilon", "0"], Path(folder) / "greedy.log")
        as_paper = run_redline(command, Path(folder) / "as-paper.log")
    row = read_result(facts, read_records(run / "metrics.jsonl"), greedy, as_paper)
    say(f"{row['algorithm']}: {row['mean_return']:.1f} after {row['steps']:,} steps")
    return row


def read_result(facts: Row, metrics: Sequence[Row], result: Row, as_paper: Row) -> Row:
    """Return a run's row: run.json, metrics, and what `redline eval` says without ε and with the paper's."""
    settings = changed_settings(facts)
    return {
        "algorithm": facts["algorithm"],
        "env": facts["config"]["env"]["id"],
        "mean_return": result["mean_return"],
        "interval": result["interval"],
        "returns": result["returns"],
        "episodes": len(result["returns"]),
        "paper_epsilon": as_paper["epsilon"],
        "mean_return_at_paper_epsilon": as_paper["mean_return"],
        "steps": result["checkpoint_steps"],
        "minutes": minutes_until(metrics, result["checkpoint_steps"]),
        "seed": facts["config"]["seed"],
        "settings": settings,
        "flags": typed(settings),
        "resume_changes": [resume["changes"] for resume in facts["resumes"]],
        "run_commit": facts["commit"],
        "run_host": facts["host"],
    }


def measurement(rows: Sequence[Row]) -> Measurement:
    """Return what the rows show: of each family, one agent at least must play well."""
    names = [row["algorithm"] for row in rows]
    families: dict[bool, list[float]] = {}
    for row in rows:
        uses_replay = isinstance(ALGORITHMS[row["algorithm"]].atari.algorithm, QLearning)
        families.setdefault(uses_replay, []).append(row["mean_return"])
    fields = ("mean_return", "mean_return_at_paper_epsilon", "paper_epsilon", "episodes", "steps", "minutes", "flags")
    return Measurement(
        name="algorithms-pong-score",
        title=f"greedy play on Pong (ε = 0): mean of {rows[0]['episodes']} episodes",
        headline=", ".join(f"{row['algorithm']} {as_text(row['mean_return'])}{_beside(row)}" for row in rows),
        learning="; ".join(f"{row['algorithm']} after {row['steps']:,} steps{_duration(row)}" for row in rows),
        passed=len(families) == 2 and all(max(means) >= REQUIRED_MEAN for means in families.values()),
        config={name: row["settings"] for name, row in zip(names, rows, strict=True)},
        repeats=[{key: value for key, value in row.items() if key != "settings"} for row in rows],
        summary={
            "algorithms": {name: {key: row[key] for key in fields} for name, row in zip(names, rows, strict=True)},
            "required_mean_return": REQUIRED_MEAN,
        },
    )


def _beside(row: Row) -> str:
    if not row["paper_epsilon"]:
        return ""
    return f" ({as_text(row['mean_return_at_paper_epsilon'])} with the paper's ε {row['paper_epsilon']:g})"


def _duration(row: Row) -> str:
    return "" if row["minutes"] is None else f" in {row['minutes']:.0f} min"


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate all runs and record what they reached."""
    options = parse(argv)
    try:
        names = [read_run_json(run)["algorithm"] for run in options.runs]
        if len(set(names)) < len(names):
            raise UserError(f"two runs of the same algorithm ({', '.join(names)}): give one of each")
        result = measurement([evaluate(run, episodes=options.episodes) for run in options.runs])
    except (UserError, OSError, RuntimeError) as error:
        raise SystemExit(f"pong_score: {error}") from None
    return finish(result, as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run directories, one of each algorithm")
    parser.add_argument("--episodes", type=at_least(1), default=10, help="episodes to play")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
