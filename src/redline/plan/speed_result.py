"""What a plan of the speed found, as plain data: requested → effective, the bottleneck, and every candidate."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any, NamedTuple

from redline.envs.atari_games import find_game
from redline.plan.knobs import (
    KNOBS,
    LEARNING,
    NEARLY,
    TRIED,
    Changes,
    has_knob,
    kind_of,
    may_be_chosen,
    read_knob,
)
from redline.plan.speed import Gain, Standing, Window, gain_words, roles_of
from redline.plan.speed_plan import DEFAULT, SpeedPlan
from redline.runs.host import usable_cores
from redline.runtime.config import flag_of

OPEN = {"learner.threads": 0, "actor.threads": 0}  # values that let Redline choose
WHAT_CHANGES = {NEARLY: "the age of the weights that act, or rounding", LEARNING: "what is learnt"}

INLINE, LEARNER, ACTOR = "inline", "learner", "actor"
LEARNING_PHASES = ("learn", "draw")
WORKS = 0.75  # share of the time in which a process is at work that holds the others up

Row = dict[str, Any]


def result_of(plan: SpeedPlan) -> Row:
    """Return the whole result."""
    chosen = plan.choice.standings.get(plan.choice.name, Standing())
    bottleneck = find_bottleneck(chosen.windows)
    facts = {key: value for key, value in plan.measured.items() if key != "schema"}
    return {
        "algorithm": plan.asked.algorithm,
        "env": plan.asked.job.env.id,
        "vary": plan.asked.vary,
        "budget_s": plan.seconds,
        "chosen": plan.choice.name,
        "why": plan.choice.why,
        "changes": dict(plan.chosen),
        "settings": settings_of(plan),
        "adjustments": [str(item) for item in plan.after.adjustments],
        "bottleneck": bottleneck._asdict(),
        "roles": {name: asdict(use) for name, use in roles_of(chosen.windows).items()},
        "gpu_memory_bytes": max((window.gpu_memory_bytes or 0 for window in chosen.windows), default=0) or None,
        "candidates": [candidate_of(plan, name, changes) for name, changes in plan.changes.items()],
        "not_tried": [{"name": name, "why": why} for name, why in plan.not_tried.items()],
        "windows_repeated": plan.choice.repeats,
        "windows_disturbed": plan.choice.disturbed,
        **facts,
    }


# Requested → effective


def settings_of(plan: SpeedPlan) -> list[Row]:
    """Return each knob: what was requested, what it will be, why, and the gain that was measured."""
    return [
        {
            "setting": flag_of(key).removeprefix("--"),
            "requested": requested_of(plan, key),
            "effective": effective_of(plan, key),
            "why": why_of(plan, key),
            "gain": _gain_json(_gain_alone(plan, key)) if key in plan.chosen else None,
        }
        for key in KNOBS
        if has_knob(plan.asked.job, key)
    ]


def requested_of(plan: SpeedPlan, key: str) -> Any:
    """Return what was requested; `auto` where that was left open."""
    value = read_knob(plan.asked.job, key)
    return "auto" if key in OPEN and value == OPEN[key] else value


def effective_of(plan: SpeedPlan, key: str) -> Any:
    """Return what the chosen training has."""
    if key == "replay.codec" and plan.after.layout is not None:
        return plan.after.layout.effective_codec
    return 1 if _steps_in_one_thread(plan, key) else read_knob(plan.after.job, key)


def why_of(plan: SpeedPlan, key: str) -> str:
    """Say why a knob is as it is."""
    if key in plan.chosen:
        return _why_changed(plan, key)
    if key == "replay.codec" and not plan.before.spec.is_image:
        return "vectors are always raw"
    if _steps_in_one_thread(plan, key):
        return "only Atari games step on several threads"
    cores, effective = usable_cores(), read_knob(plan.after.job, key)
    beyond = f", although this machine has {cores} cores" if key in OPEN and effective > cores else ""
    return _why_kept(plan, key) + beyond


def _why_kept(plan: SpeedPlan, key: str) -> str:
    if key in plan.asked.typed:
        return "as you asked"
    if KNOBS[key] not in TRIED[plan.asked.vary]:
        kind = "nearly" if KNOBS[key] == NEARLY else "all"
        return f"not varied: --vary {kind} does, and changes {WHAT_CHANGES[KNOBS[key]]}"
    standings = plan.choice.standings
    if any(key in plan.changes[name] for name, found in standings.items() if found.windows):
        return "nothing tried was faster beyond doubt"
    lost = {name: found.why_lost for name, found in standings.items() if found.why_lost is not None}
    untried = [why for name, why in {**plan.not_tried, **lost}.items() if f"{flag_of(key)} " in f"{name} "]
    return next(iter(untried), "there is no other value to try here")


def _steps_in_one_thread(plan: SpeedPlan, key: str) -> bool:
    return key == "actor.threads" and find_game(plan.asked.job.env.id) is None


def _why_changed(plan: SpeedPlan, key: str) -> str:
    alone, whole = _gain_alone(plan, key), plan.choice.standings[plan.choice.name].gain
    if whole is None:
        return plan.choice.why
    if alone is None or alone == whole:
        return f"{gain_words(whole)} the speed"
    return f"{gain_words(alone)} the speed alone, {gain_words(whole)} with all changes"


def _gain_alone(plan: SpeedPlan, key: str) -> Gain | None:
    """Return the gain of the candidate that changed this knob to the chosen value, and least beside it."""
    same = [
        (len(changes), name)
        for name, changes in plan.changes.items()
        if changes.get(key) == plan.chosen.get(key) and key in changes and changes.items() <= plan.chosen.items()
    ]
    return plan.choice.standings.get(min(same)[1], Standing()).gain if same else None


# Candidates


def candidate_of(plan: SpeedPlan, name: str, changes: Changes) -> Row:
    """Return how a candidate did: its speed, and beside it what it does to learning."""
    standing = plan.choice.standings.get(name, Standing())
    windows = standing.windows
    steps, updates = sum(window.steps for window in windows), sum(window.updates for window in windows)
    batch_size = int(changes.get("batch_size", plan.before.job.algorithm.batch_size))
    return {
        "name": name,
        "changes": dict(changes),
        "kind": kind_of(changes),
        "steps_per_s": median(window.steps_per_s for window in windows) if windows else None,
        "gain": _gain_json(standing.gain) if name != DEFAULT else None,
        "rounds": len(windows),
        "samples_per_step": updates * batch_size / steps if steps else None,
        "updates_per_step": updates / steps if steps else None,
        "weights_age_updates": fmean(window.weights_age_updates for window in windows) if windows else None,
        "state": state_of(plan, name, standing),
    }


def state_of(plan: SpeedPlan, name: str, standing: Standing) -> str:
    """Say what became of a candidate."""
    if name == plan.choice.name:
        return "chosen"
    if standing.why_lost is not None:
        return f"lost: {standing.why_lost}"
    if not may_be_chosen(plan.changes[name]):
        return "shown only: it learns from fewer samples"
    if not standing.windows:
        return "not measured: no time was left"
    return "default" if name == DEFAULT else "final" if standing.final_rounds else "dropped"


def _gain_json(gain: Gain | None) -> Row | None:
    return None if gain is None else gain._asdict()


# The bottleneck


class Bottleneck(NamedTuple):
    """What holds the training up."""

    part: str  # learner, emulation, acting, waiting or unknown
    sentence: str


def find_bottleneck(windows: Sequence[Window]) -> Bottleneck:
    """Return what the windows of one candidate show."""
    if not windows:
        return Bottleneck("unknown", "Nothing was measured.")
    waits = mean_waits(windows)
    found = _of_processes(waits) if LEARNER in waits else _of_one_process(windows, waits)
    return found._replace(sentence=found.sentence.replace("%", " %"))


def mean_waits(windows: Sequence[Window]) -> dict[str, dict[str, float]]:
    """Return the mean share of the time that each role waited, by reason."""
    found: dict[str, dict[str, list[float]]] = {}
    for window in windows:
        for role, by_reason in window.waits.items():
            for why, share in by_reason.items():
                found.setdefault(role, {}).setdefault(why, []).append(share)
    return {role: {why: fmean(shares) for why, shares in by.items()} for role, by in found.items()}


def _of_one_process(windows: Sequence[Window], waits: Mapping[str, Mapping[str, float]]) -> Bottleneck:
    learning = fmean(sum(window.phases.get(phase, 0.0) for phase in LEARNING_PHASES) for window in windows)
    acting = fmean(window.phases.get("act", 0.0) for window in windows)
    emulation = waits.get(INLINE, {}).get("envs", 0.0)
    told = {
        Bottleneck(
            "learner",
            f"The learner: drawing batches and learning take {learning:.0%} of the time, and the emulators add "
            f"{emulation:.0%} that learning does not hide.",
        ): learning,
        Bottleneck(
            "emulation",
            f"Emulation: {emulation:.0%} of the time the envs are waited for; learning takes {learning:.0%}.",
        ): emulation,
        Bottleneck(
            "acting", f"Acting: choosing actions takes {acting:.0%} of the time; learning takes {learning:.0%}."
        ): acting,
    }
    return max(told, key=lambda found: told[found])


def _of_processes(waits: Mapping[str, Mapping[str, float]]) -> Bottleneck:
    works = 1.0 - min(1.0, sum(waits[LEARNER].values()))
    actors = [by_reason for role, by_reason in waits.items() if role.startswith(ACTOR)]
    for_envs, for_learner = (
        fmean(by_reason.get(why, 0.0) for by_reason in actors) if actors else 0.0 for why in ("envs", "learner")
    )
    acting = max(0.0, 1.0 - for_envs - for_learner)
    learner = f"the learner works {works:.0%}"
    if works >= WORKS:
        return Bottleneck("learner", f"The learner: it works {works:.0%} of the time.")
    if for_envs >= max(acting, for_learner):
        return Bottleneck("emulation", f"Emulation: actors wait for their envs {for_envs:.0%} of the time, {learner}.")
    if acting >= WORKS:
        return Bottleneck("acting", f"Acting: actors compute {acting:.0%} of the time, {learner}.")
    return Bottleneck("waiting", f"Waiting: {learner} of the time, and actors wait for it {for_learner:.0%}.")
