"""What `redline tune` prints: a live table or lines during a search, then the result."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from redline.cli.displays import Lines, LivePanel, framed, render_progress
from redline.cli.output import print_table
from redline.tune.goals import RunResult, Verdict, describe_run
from redline.tune.search import Found, SearchView, TrialView
from redline.tune.space import Space, describe_settings, describe_value
from redline.tune.study import FINAL_SEEDS, REPORT, SEARCH_SEEDS, StudyFolder
from redline.units import duration

LINE_INTERVAL_S = 30.0
MOST_ROWS = 16
STYLES = {"running": "bold", "failed": "red", "pruned": "dim", "interrupted": "dim", "waiting": "dim"}


class TuneDisplay:
    """Shows a search on a panel or as lines."""

    def __init__(self, display: LivePanel | Lines, title: str) -> None:
        self._display = display
        self._title = title

    def note(self, text: str) -> None:
        """Print a line."""
        self._display.note(text)

    def show(self, view: SearchView) -> None:
        """Redraw the panel, or print a line if the last one is old enough."""
        if isinstance(self._display, LivePanel):
            self._display.draw(render_search(self._title, view))
        else:
            self._display.show_line(render_line(view), LINE_INTERVAL_S)


def render_search(title: str, view: SearchView) -> RenderableType:
    """Draw a search as a table of its trials."""
    head = render_progress(view.share, f"{view.share:.0%} · {view.phase}{_left(view)}")
    keys = list(dict.fromkeys(key for trial in view.trials for key in trial.settings))
    rows = Table(box=None, header_style="bold red", padding=(0, 1, 0, 0), pad_edge=False)
    rows.add_column("", justify="right", no_wrap=True)
    for name in ("state", *short_names(keys), "value"):
        rows.add_column(Text(name))
    for trial in shown(view):
        is_best = trial.number == view.best
        cells = [describe_value(trial.settings[key]) if key in trial.settings else "–" for key in keys]
        style = "bold green" if is_best else STYLES.get(trial.state, "")
        words = [str(trial.number), "best" if is_best else trial.state, *cells, trial.told]
        rows.add_row(*(Text(word) for word in words), style=style)
    return framed(title, Group(head, rows))


def short_names(keys: Sequence[str]) -> list[str]:
    """Return the last part of each setting's name if it is unique: columns are narrow."""
    last = [key.rpartition(".")[2] for key in keys]
    return [name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)]


def shown(view: SearchView) -> Sequence[TrialView]:
    """Return the trials that fit on a screen: the best, the running and the newest ones."""
    # sorts are stable: the best and the running ones come to the end, behind the newest
    by_weight = sorted(view.trials, key=lambda trial: trial.number == view.best or trial.state == "running")
    return sorted(by_weight[-MOST_ROWS:], key=lambda trial: trial.number)


def render_line(view: SearchView) -> str:
    """Write the state of a search as a line."""
    running = "; ".join(f"{trial.number}: {trial.told}" for trial in view.trials if trial.state == "running")
    best = next((f"best {trial.number}: {trial.told}" for trial in view.trials if trial.number == view.best), "")
    parts = (f"{view.share:.0%}", f"{view.phase}{_left(view)}", best, running)
    return " | ".join(part for part in parts if part)


def _left(view: SearchView) -> str:
    return "" if view.left_s is None else f", at most {duration(view.left_s)} left"


def opening_lines(folder: StudyFolder, space: Space) -> list[str]:
    """Return lines that tell what the search will do."""
    asked = folder.settings
    limits = ((asked.search_minutes, "minutes"), (asked.trials, "trials"))
    how_long = [f"{limit:g} {unit}" for limit, unit in limits if limit is not None]
    spent = f", {duration(folder.spent_s)} spent before" if folder.spent_s else ""
    check_s = -(-2 * asked.final_seeds // asked.side_by_side) * asked.check_minutes * 60
    return [
        f"study {folder.path}: goal {asked.goal}, returns are means of {asked.window} episodes",
        f"search: at most {' or '.join(how_long)}{spent}; trials side by side: {asked.side_by_side}, threads of each: "
        f"{asked.threads}, seeds per trial: {asked.seeds_per_trial}, minutes per seed: {asked.minutes_per_trial:g}",
        f"seeds: {SEARCH_SEEDS.start} and up in the search, {FINAL_SEEDS.start} and up in the check of "
        f"the winner, which comes after it and takes at most about {duration(check_s)}",
        f"space {asked.space_name}: {', '.join(space.dimensions)}",
    ]


def recipe_comment(folder: StudyFolder, verdict: Verdict) -> list[str]:
    """Return the comment at the top of a recipe."""
    asked = folder.settings
    return [
        f"{asked.algo} on {asked.env}, found by redline tune: trial {verdict.trial} of study {folder.path.name}.",
        f"Goal {asked.goal}: returns are means of {asked.window} episodes; minutes per run: "
        f"{asked.minutes_per_trial:g}, threads: {asked.threads}.",
        f"On seeds that the search never used: {verdict.describe(asked.aim)}.",
        *(f"seed {result.seed}: {describe_run(asked.aim, result)}" for result in verdict.winner),
    ]


def show_result(folder: StudyFolder, found: Found, recipe: Path | None, *, plain: bool) -> None:
    """Print the result of a study."""
    verdict = found.verdict
    if verdict is None:
        return
    goal, states = folder.settings.aim, [trial.state for trial in found.trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    print(f"search: {len(found.trials)} trials ({counts}) in {duration(folder.spent_s)}")
    print(f"winner: trial {verdict.trial}, {describe_settings(verdict.settings)}")
    rows = [
        (
            who,
            str(result.seed),
            describe_run(goal, result),
            f"{result.steps:,}",
            f"{result.minutes:.2f}",
            str(folder.path / result.run) if result.run else "–",
        )
        for who, result in verdict.runs()
    ]
    head = ("settings", "seed", "result", "steps", "minutes", "run")
    print_table(head, rows, plain=plain, numeric=(1, 3, 4))
    for failure in verdict.repeated:
        print(f"failed before and trained again: {failure}")
    print(f"on seeds that the search never used: {verdict.describe(goal)}")
    print(f"report {folder.path / REPORT}; the runs: redline report {folder.path / 'trials'}")
    if recipe is not None:
        print(f"recipe {recipe}: redline train --config {recipe}")


def to_json(folder: StudyFolder, found: Found, recipe: Path | None) -> dict[str, Any]:
    """Return everything as one plain object."""
    goal, verdict = folder.settings.aim, found.verdict

    def checked(results: Sequence[RunResult]) -> dict[str, Any]:
        return {"result": goal.describe(results), "runs": [result.row() for result in results]}

    winner = verdict and {"trial": verdict.trial, "settings": verdict.settings, **checked(verdict.winner)}
    return {
        "study": folder.path,
        "goal": folder.settings.goal,
        "stopped": found.stopped,
        "search_minutes": folder.spent_s / 60,
        "report": folder.path / REPORT,
        "recipe": verdict and recipe,
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
        "winner": winner,
        "default": verdict and checked(verdict.default),
        "winner_is_better": verdict and verdict.is_better(goal),
        "repeated": () if verdict is None else verdict.repeated,
    }
