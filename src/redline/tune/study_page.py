"""The page of a study: the check that counts, what each trial came to, and which settings mattered."""

import math
import warnings
from collections.abc import Mapping, Sequence
from statistics import fmean

import optuna

from redline.report.amounts import DASH, amount, span
from redline.report.charts import Bar, Chart, Line, LineChart, ShareChart
from redline.report.parts import Notice, Part, Section, Table, Text, Tiles, grid, render_parts
from redline.tune.goals import Goal, RunResult, Verdict, describe_run
from redline.tune.search import describe_settings, describe_value
from redline.tune.space import Choices, Space
from redline.tune.study import FINAL_SEEDS, SEARCH_SEEDS, StudyFolder
from redline.tune.trials import TrialRecord, best_of

MAX_POINTS = 2_000
FEWEST_TRIALS = 5  # done, below which nothing can be said about what mattered


def build_page(
    folder: StudyFolder,
    space: Space,
    trials: Sequence[TrialRecord],
    importance: Mapping[str, float],
    verdict: Verdict | None,
    *,
    unix_s: float,
) -> str:
    """Return the page as one file."""
    asked = folder.settings
    title = f"{asked.algo} on {asked.env}: search for {asked.goal}"
    under = f"{folder.path.name}: trials of {asked.minutes_per_trial:g} minutes, {asked.seeds_per_trial} seeds each"
    parts: list[Part] = [
        Tiles(_facts(folder, trials)),
        _check_section(folder, trials, verdict),
        _history_section(asked.aim, trials),
        _importance_section(importance),
        _slices_section(asked.aim, space, trials),
        _trial_section(asked.aim, space, trials),
        _space_section(space),
    ]
    return render_parts(title, under, parts, unix_s=unix_s)


def measure_importance(study: optuna.Study, trials: Sequence[TrialRecord]) -> dict[str, float]:
    """Return how much each setting mattered among the trials that are done, most first; nothing where they are few."""
    if sum(trial.score is not None for trial in trials) < FEWEST_TRIALS:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = optuna.importance.get_param_importances(
                study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
            )
        except (ValueError, RuntimeError):  # all values alike, or a setting that never varied
            return {}
    known = {key: float(share) for key, share in found.items() if math.isfinite(share)}
    return dict(sorted(known.items(), key=lambda item: -item[1]))


def _grid(charts: Sequence[Chart]) -> Part:
    return grid(charts, max_points=MAX_POINTS)


def _facts(folder: StudyFolder, trials: Sequence[TrialRecord]) -> list[tuple[str, str, str]]:
    states = [trial.state for trial in trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("done", "pruned", "failed", "interrupted"))
    asked = folder.settings
    return [
        ("trials", str(len(trials)), counts),
        ("search", span(folder.spent_s), f"{asked.side_by_side} side by side, {asked.threads} threads each"),
        ("seeds of the search", f"from {SEARCH_SEEDS.start:,}", "every run has its own"),
        ("seeds of the check", f"from {FINAL_SEEDS.start:,}", "none of them was used before"),
    ]


def _check_section(folder: StudyFolder, trials: Sequence[TrialRecord], verdict: Verdict | None) -> Section:
    goal, best = folder.settings.aim, best_of(trials)
    if verdict is None or best is None:
        return Section("Check on unused seeds", [Text("It has not been made yet.")], identity="check")
    rows = [
        (who, str(result.seed), *_run_cells(goal, result))
        for who, results in (("winner", verdict.winner), ("default", verdict.default))
        for result in results
    ]
    head = ("settings", "seed", "result", "steps", "minutes", "mean return at the end", "best mean", "run")
    better = "is better" if verdict.is_better(goal) else "is not better"
    lead = (
        f"Trial {best.number} won the search: {describe_settings(best.settings)}. On unused seeds it {better} than the "
        f"default settings: {goal.describe(verdict.winner)} against {goal.describe(verdict.default)}. Only this "
        "counts: a winner is chosen for its value in the search, which is therefore too good."
    )
    parts: list[Part] = [Table("Runs of the check", head, rows, numeric=(1, 3, 4, 5, 6), css="card wrap")]
    if verdict.repeated:
        parts.append(Notice("What failed before and was trained again", verdict.repeated, css="missing"))
    return Section("Check on unused seeds", parts, identity="check", lead=lead)


def _run_cells(goal: Goal, result: RunResult) -> tuple[str, ...]:
    return (
        describe_run(goal, result),
        f"{result.steps:,}",
        f"{result.minutes:.2f}",
        amount(result.mean_return),
        amount(result.best_mean_return),
        result.run or DASH,
    )


def _value(goal: Goal, trial: TrialRecord) -> float | None:
    """Return a trial's value in the goal's unit."""
    amounts = [goal.amount(result) for result in trial.results]
    known = [value for value in amounts if value is not None]
    return fmean(known) if trial.score is not None and known and len(known) == len(amounts) else None


def _history_section(goal: Goal, trials: Sequence[TrialRecord]) -> Section:
    points = [(trial.number, value) for trial in trials if (value := _value(goal, trial)) is not None]
    if not points:
        return Section("History", [Text("No trial has a value yet.")], identity="history")
    pick = max if goal.target_return is None else min
    best = [pick(value for _, value in points[: place + 1]) for place in range(len(points))]
    numbers = [number for number, _ in points]
    chart = LineChart(
        name="history",
        title="Values of the trials",
        unit=goal.unit,
        x_label="trial",
        lines=(
            Line("each trial", numbers, [value for _, value in points], is_points=True),
            Line("best so far", numbers, best, colour=1),
        ),
    )
    lead = f"The {len(points)} trials that are done and have a value; the others are in the table below."
    return Section("History", [_grid([chart])], identity="history", lead=lead)


def _importance_section(importance: Mapping[str, float]) -> Section:
    if not importance:
        text = f"It takes {FEWEST_TRIALS} trials that are done, with different values, to say what mattered."
        return Section("Which settings mattered", [Text(text)], identity="importance")
    bars = tuple(Bar(key, (("importance", share),)) for key, share in importance.items())
    chart = ShareChart(name="importance", title="Importance", unit="share of all settings, PED-ANOVA", bars=bars)
    lead = "How far the best trials' values of a setting differ from those of all trials. Few trials tell little."
    return Section("Which settings mattered", [_grid([chart])], identity="importance", lead=lead)


def _slices_section(goal: Goal, space: Space, trials: Sequence[TrialRecord]) -> Section:
    """Return each number that varies against the value that it came with."""
    charts = []
    for key, dimension in space.dimensions.items():
        points = [
            (float(trial.settings[key]), value)
            for trial in trials
            if isinstance(trial.settings.get(key), int | float) and (value := _value(goal, trial)) is not None
        ]
        if isinstance(dimension, Choices) or len(points) < FEWEST_TRIALS:
            continue
        line = Line(key, [x for x, _ in points], [y for _, y in points], is_points=True)
        charts.append(LineChart(name=key, title=key, unit=goal.unit, x_label=key, lines=(line,)))
    drawn: Part = _grid(charts) if charts else Text("Too few trials.")
    return Section("Value against setting", [drawn], identity="slices")


def _trial_section(goal: Goal, space: Space, trials: Sequence[TrialRecord]) -> Section:
    keys = list(space.dimensions)
    best = best_of(trials)
    rows = [
        (
            str(trial.number),
            "best" if best is not None and trial.number == best.number else trial.state,
            *(describe_value(trial.settings[key]) if key in trial.settings else DASH for key in keys),
            goal.describe(trial.results) if trial.results and trial.state == "done" else trial.why or DASH,
            ", ".join(str(result.seed) for result in trial.results) or DASH,
        )
        for trial in trials
    ]
    head = ("trial", "state", *keys, "value", "seeds")
    failures = [
        f"trial {trial.number}, seed {result.seed}: {result.failure}"
        for trial in trials
        for result in trial.results
        if result.failure and trial.state == "failed"
    ]
    parts: list[Part] = [Table("Trials", head, rows, numeric=(0,), css="card long wrap")]
    if failures:
        parts.append(Notice("What failed", failures, css="missing"))
    return Section("All trials", parts, identity="trials")


def _space_section(space: Space) -> Section:
    rows = []
    for key, dimension in space.dimensions.items():
        if isinstance(dimension, Choices):
            rows.append((key, ", ".join(dimension.texts)))
        else:
            kind = ", logarithmic" if dimension.log else ""
            rows.append((key, f"{describe_value(dimension.low)} to {describe_value(dimension.high)}{kind}"))
    rows += [(key, f"{describe_value(value)}, the same for all") for key, value in space.fixed.items()]
    return Section("Search space", [Table("Search space", ("setting", "values"), rows)], identity="space")
