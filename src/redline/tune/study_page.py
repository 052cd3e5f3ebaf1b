"""The page of a study: the check that counts, what each trial came to, and which settings mattered."""

import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import accumulate

import optuna

from redline.report.charts import Bar, Chart, Line, LineChart, ShareChart
from redline.report.parts import DASH, Notice, Part, Section, Table, Text, Tiles, amount, grid, render_parts, span
from redline.tune.goals import Goal, Verdict, describe_run
from redline.tune.space import Choices, Space, describe_settings, describe_value
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
    under = f"{folder.path.name}: minutes per run {asked.minutes_per_trial:g}, seeds per trial {asked.seeds_per_trial}"
    states = [trial.state for trial in trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("done", "pruned", "failed", "interrupted"))
    facts = [
        ("trials", str(len(trials)), counts),
        ("search", span(folder.spent_s), f"side by side {asked.side_by_side}, threads of each {asked.threads}"),
        ("seeds of the search", f"from {SEARCH_SEEDS.start:,}", "every run has its own"),
        ("seeds of the check", f"from {FINAL_SEEDS.start:,}", "none of them was used before"),
    ]
    parts: list[Part] = [
        Tiles(facts),
        _check_section(asked.aim, verdict),
        _history_section(asked.aim, trials),
        _importance_section(asked.aim, space, trials, importance),
        _trial_section(asked.aim, space, trials),
        _space_section(space),
    ]
    return render_parts(title, under, parts, unix_s=unix_s)


def measure_importance(study: optuna.Study, trials: Sequence[TrialRecord]) -> dict[str, float]:
    """Return how much each setting mattered among the trials that are done, most first; nothing where they are few."""
    if sum(trial.score is not None for trial in trials) < FEWEST_TRIALS:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    with warnings.catch_warnings(action="ignore"):
        try:
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
        except (ValueError, RuntimeError):  # all values alike, or a setting that never varied
            return {}
    return {key: float(share) for key, share in found.items() if math.isfinite(share)}


def _section(title: str, identity: str, part: Part | Sequence[Chart], *more: Part, lead: str = "") -> Section:
    drawn = grid(part, max_points=MAX_POINTS) if isinstance(part, Sequence) else part
    return Section(title, [drawn, *more], identity=identity, lead=lead)


def _check_section(goal: Goal, verdict: Verdict | None) -> Section:
    title = "Check on unused seeds"
    if verdict is None:
        return _section(title, "check", Text("It has not been made yet."))
    rows = [
        (
            who,
            str(result.seed),
            describe_run(goal, result),
            f"{result.steps:,}",
            f"{result.minutes:.2f}",
            amount(result.mean_return),
            amount(result.best_mean_return),
            result.run or DASH,
        )
        for who, result in verdict.runs()
    ]
    head = ("settings", "seed", "result", "steps", "minutes", "mean return at the end", "best mean", "run")
    lead = (
        f"Trial {verdict.trial} won the search: {describe_settings(verdict.settings)}. On unused seeds: "
        f"{verdict.describe(goal)}. Only this counts: a winner is chosen for its value in the search, which is "
        "therefore too good."
    )
    table = Table("Runs of the check", head, rows, numeric=(1, 3, 4, 5, 6), css="card wrap")
    failed = _notice("What failed before and was trained again", verdict.repeated)
    return _section(title, "check", table, *failed, lead=lead)


def _notice(title: str, sentences: Sequence[str]) -> list[Part]:
    return [Notice(title, sentences, css="missing")] if sentences else []


def _values(goal: Goal, trials: Sequence[TrialRecord]) -> list[tuple[TrialRecord, float]]:
    """Return the trials that are done, each with its value in the goal's unit, if it has one."""
    values = [(trial, goal.value(trial.results)) for trial in trials if trial.score is not None]
    return [(trial, value) for trial, value in values if value is not None]


def _history_section(goal: Goal, trials: Sequence[TrialRecord]) -> Section:
    found = _values(goal, trials)
    if not found:
        return _section("History", "history", Text("No trial has a value yet."))
    numbers, values = [trial.number for trial, _ in found], [value for _, value in found]
    best = list(accumulate(values, max if goal.target_return is None else min))
    lines = Line("each trial", numbers, values, is_points=True), Line("best so far", numbers, best, colour=1)
    chart = LineChart("history", "Values of the trials", goal.unit, "trial", lines)
    lead = f"The {len(found)} trials that are done and have a value; the others are in the table below."
    return _section("History", "history", [chart], lead=lead)


def _importance_section(
    goal: Goal, space: Space, trials: Sequence[TrialRecord], importance: Mapping[str, float]
) -> Section:
    """Draw how much each setting mattered, and each number that varies against the value that it came with."""
    charts: list[Chart] = []
    if importance:
        bars = tuple(Bar(key, (("importance", share),)) for key, share in importance.items())
        charts.append(ShareChart("importance", "Importance", "share of all settings, PED-ANOVA", bars))
    for key, dimension in space.dimensions.items():
        found = [(trial.settings[key], value) for trial, value in _values(goal, trials) if key in trial.settings]
        if not isinstance(dimension, Choices) and len(found) >= FEWEST_TRIALS:
            line = Line(key, [float(x) for x, _ in found], [y for _, y in found], is_points=True)
            charts.append(LineChart(name=key, title=key, unit=goal.unit, x_label=key, lines=(line,)))
    lead = (
        "Importance is how far the best trials' values of a setting differ from those of all trials; few trials tell "
        "little. Below, each point is a trial."
    )
    text = Text(f"It takes {FEWEST_TRIALS} trials that are done, with different values, to say what mattered.")
    return _section("Which settings mattered", "importance", charts or text, lead=lead if importance else "")


def _trial_section(goal: Goal, space: Space, trials: Sequence[TrialRecord]) -> Section:
    best = best_of(trials)
    rows = [
        (
            str(trial.number),
            "best" if trial == best else trial.state,
            *(describe_value(trial.settings.get(key, DASH)) for key in space.dimensions),
            goal.describe(trial.results) if trial.results and trial.state == "done" else trial.why or DASH,
            ", ".join(str(result.seed) for result in trial.results) or DASH,
        )
        for trial in trials
    ]
    failures = [
        f"trial {trial.number}, seed {result.seed}: {result.failure}"
        for trial in trials
        for result in trial.results
        if result.failure and trial.state == "failed"
    ]
    head = ("trial", "state", *space.dimensions, "value", "seeds")
    table = Table("Trials", head, rows, numeric=(0,), css="card long wrap")
    return _section("All trials", "trials", table, *_notice("What failed", failures))


def _space_section(space: Space) -> Section:
    rows = []
    for key, dimension in space.dimensions.items():
        if isinstance(dimension, Choices):
            rows.append((key, ", ".join(dimension.texts)))
        else:
            kind = ", logarithmic" if dimension.log else ""
            rows.append((key, f"{describe_value(dimension.low)} to {describe_value(dimension.high)}{kind}"))
    rows += [(key, f"{describe_value(value)}, the same for all") for key, value in space.fixed.items()]
    return _section("Search space", "space", Table("Search space", ("setting", "values"), rows))
