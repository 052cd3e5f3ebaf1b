"""What holds a measured training up, in one sentence: learner, emulation, acting, or waiting for each other."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from redline.plan.window import Window

INLINE, LEARNER, ACTOR = "inline", "learner", "actor"
LEARNING_PHASES = ("learn", "draw")
WORKS = 0.75  # share of the time in which a process is at work that holds the others up


class Bottleneck(NamedTuple):
    """What holds the training up."""

    part: str  # learner, emulation, acting, waiting or unknown
    sentence: str


def find_bottleneck(windows: Sequence[Window]) -> Bottleneck:
    """Return what the windows of one candidate show."""
    if not windows:
        return Bottleneck("unknown", "Nothing was measured.")
    waits = mean_waits(windows)
    return _of_processes(waits) if LEARNER in waits else _of_one_process(windows, waits)


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
    shares = {"learner": learning, "emulation": emulation, "acting": acting}
    part = max(shares, key=lambda name: shares[name])
    words = {
        "learner": f"The learner: drawing batches and learning take {learning:.0%} of the time, and the emulators add "
        f"{emulation:.0%} that learning does not hide.",
        "emulation": f"Emulation: {emulation:.0%} of the time the envs are waited for; learning takes {learning:.0%}.",
        "acting": f"Acting: choosing actions takes {acting:.0%} of the time; learning takes {learning:.0%}.",
    }
    return Bottleneck(part, _spaced(words[part]))


def _of_processes(waits: Mapping[str, Mapping[str, float]]) -> Bottleneck:
    learner_works = 1.0 - min(1.0, sum(waits[LEARNER].values()))
    actors = [by_reason for role, by_reason in waits.items() if role.startswith(ACTOR)]
    for_envs = fmean(by_reason.get("envs", 0.0) for by_reason in actors) if actors else 0.0
    for_learner = fmean(by_reason.get("learner", 0.0) for by_reason in actors) if actors else 0.0
    acting = max(0.0, 1.0 - for_envs - for_learner)
    if learner_works >= WORKS:
        return Bottleneck("learner", _spaced(f"The learner: it works {learner_works:.0%} of the time."))
    if for_envs >= max(acting, for_learner):
        said = f"Emulation: actors wait for their envs {for_envs:.0%} of the time, the learner works "
        return Bottleneck("emulation", _spaced(f"{said}{learner_works:.0%}."))
    if acting >= WORKS:
        said = f"Acting: actors compute {acting:.0%} of the time, the learner works {learner_works:.0%}."
        return Bottleneck("acting", _spaced(said))
    said = f"Waiting: the learner works {learner_works:.0%} of the time, and actors wait for it {for_learner:.0%}."
    return Bottleneck("waiting", _spaced(said))


def _spaced(text: str) -> str:
    return text.replace("%", " %")
