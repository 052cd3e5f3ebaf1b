"""What `redline tune` says: what is going to happen, what was found, and what a recipe says of itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redline.cli.output import is_plain, print_table
from redline.records import as_json_value
from redline.tune.checking import describe_run
from redline.tune.goals import Goal, RunResult
from redline.tune.space import Space
from redline.tune.study import FINAL_SEEDS, REPORT, SEARCH_SEEDS, StudyFolder
from redline.tune.tuner import Found
from redline.tune.watching import describe_settings
from redline.units import duration


def opening_lines(folder: StudyFolder, space: Space) -> list[str]:
    """Say what is going to happen."""
    asked = folder.settings
    how_long = [
        *([] if asked.search_minutes is None else [f"{asked.search_minutes:g} minutes"]),
        *([] if asked.trials is None else [f"{asked.trials} trials"]),
    ]
    spent = f", {duration(folder.spent_s)} of them spent before" if folder.spent_s else ""
    check_s = -(-2 * asked.final_seeds // asked.side_by_side) * asked.check_minutes * 60
    return [
        f"study {folder.path}: goal {asked.goal}, returns are means of {asked.window} episodes",
        f"search: at most {' or '.join(how_long)}{spent}; trials side by side: {asked.side_by_side}, threads of each: "
        f"{asked.threads}, seeds per trial: {asked.seeds_per_trial}, minutes per seed: {asked.minutes_per_trial:g}",
        f"seeds: {SEARCH_SEEDS.start} and up in the search, {seed_words(FINAL_SEEDS[: asked.final_seeds])} in the "
        f"check of the winner, which comes after it and takes at most about {duration(check_s)}",
        f"space {asked.space_name}: {', '.join(space.dimensions)}",
    ]


def seed_words(seeds: Sequence[int]) -> str:
    """Return a run of seeds in few words."""
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"


def recipe_comment(folder: StudyFolder, found: Found) -> list[str]:
    """Return what a recipe says of itself."""
    if found.best is None or found.verdict is None:
        return []
    asked, winner, default = folder.settings, found.verdict.winner, found.verdict.default
    goal = asked.aim
    return [
        f"{asked.algo} on {asked.env}, found by redline tune: trial {found.best.number} of study {folder.path.name}.",
        f"Goal {asked.goal}: returns are means of {asked.window} episodes; minutes per run: "
        f"{asked.minutes_per_trial:g}, threads: {asked.threads}.",
        f"On seeds {seed_words([result.seed for result in winner])}, which the search never used: "
        f"{goal.describe(winner)}; the defaults: {goal.describe(default)}: {judgement(goal, found)}.",
        *(f"seed {result.seed}: {describe_run(goal, result)}" for result in winner),
    ]


def judgement(goal: Goal, found: Found) -> str:
    """Say whether the search was worth it."""
    if found.verdict is None:
        return "not checked"
    if found.is_default:
        return "the search found nothing better than the defaults"
    return "the winner is better" if found.verdict.is_better(goal) else "the winner is not better"


def tell(folder: StudyFolder, found: Found, recipe: Path | None, *, plain: bool) -> None:
    """Print what was found."""
    if found.best is None or found.verdict is None:
        return
    goal, states = folder.settings.aim, [trial.state for trial in found.trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    print(f"search: {len(found.trials)} trials ({counts}) in {duration(folder.spent_s)}")
    print(f"winner: trial {found.best.number}, {describe_settings(found.best.settings)}")
    checked = {"winner": found.verdict.winner, "default": found.verdict.default}
    if found.is_default:
        del checked["winner"]
    rows = [
        (
            who,
            str(result.seed),
            describe_run(goal, result),
            f"{result.steps:,}",
            f"{result.minutes:.2f}",
            str(folder.path / result.run) if result.run else "–",
        )
        for who, results in checked.items()
        for result in results
    ]
    head = ("settings", "seed", "result", "steps", "minutes", "run")
    print_table(head, rows, plain=is_plain(plain=plain, as_json=False), numeric=(1, 3, 4))
    for failure in found.verdict.repeated:
        print(f"failed before and trained again: {failure}")
    print(
        f"on seeds that the search never used: winner {goal.describe(found.verdict.winner)}, default "
        f"{goal.describe(found.verdict.default)}: {judgement(goal, found)}"
    )
    print(f"report {folder.path / REPORT}; the runs: redline report {folder.path / 'trials'}")
    if recipe is not None:
        print(f"recipe {recipe}: redline train --config {recipe}")


def to_json(folder: StudyFolder, found: Found, recipe: Path | None) -> object:
    """Return everything as one plain object."""
    goal = folder.settings.aim
    content: dict[str, Any] = {
        "schema": 1,
        "study": folder.path,
        "goal": folder.settings.goal,
        "stopped": found.stopped,
        "search_minutes": folder.spent_s / 60,
        "report": folder.path / REPORT,
        "recipe": None if found.verdict is None else recipe,
        "trials": [
            {
                "trial": trial.number,
                "state": trial.state,
                "settings": trial.settings,
                "score": trial.score,
                "why": trial.why,
                "runs": [result.row() for result in trial.results],
            }
            for trial in found.trials
        ],
        "winner": None,
        "default": None,
        "winner_is_better": None,
        "repeated": [],
    }
    if found.best is not None and found.verdict is not None:
        best, verdict = found.best, found.verdict
        content["winner"] = {"trial": best.number, "settings": best.settings, **_checked(goal, verdict.winner)}
        content["default"] = _checked(goal, verdict.default)
        content["winner_is_better"] = verdict.is_better(goal)
        content["repeated"] = verdict.repeated
    return as_json_value(content)


def _checked(goal: Goal, results: Sequence[RunResult]) -> dict[str, Any]:
    return {"result": goal.describe(results), "runs": [result.row() for result in results]}
