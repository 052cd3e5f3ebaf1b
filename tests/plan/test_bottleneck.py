"""The bottleneck in one sentence, from shares of the time worked by hand."""

from redline.plan.bottleneck import find_bottleneck
from redline.plan.window import Window


def inline(*, learn: float, act: float, envs: float) -> list[Window]:
    phases = {"act": act, "draw": 0.0, "learn": learn, "keep": envs, "other": 0.0}
    return [Window(steps=100, updates=25, seconds=1.0, phases=phases, waits={"inline": {"envs": envs}})]


def processes(*, learner: dict[str, float], actor: dict[str, float]) -> list[Window]:
    waits = {"learner": learner, "actor-0": actor, "actor-1": actor}
    return [Window(steps=100, updates=25, seconds=1.0, waits=waits)]


def test_in_one_process_the_largest_share_holds_the_rest_up() -> None:
    learner = find_bottleneck(inline(learn=0.8, act=0.1, envs=0.05))
    assert learner.part == "learner"
    assert "learning take 80 % of the time" in learner.sentence
    emulation = find_bottleneck(inline(learn=0.1, act=0.1, envs=0.7))
    assert (emulation.part, "70 % of the time the envs" in emulation.sentence) == ("emulation", True)
    assert find_bottleneck(inline(learn=0.2, act=0.6, envs=0.1)).part == "acting"


def test_among_processes_the_one_that_never_waits_holds_the_rest_up() -> None:
    busy = find_bottleneck(processes(learner={"actors": 0.1}, actor={"learner": 0.6, "envs": 0.2}))
    assert (busy.part, busy.sentence) == ("learner", "The learner: it works 90 % of the time.")
    asleep = find_bottleneck(processes(learner={"actors": 0.7, "gather": 0.1}, actor={"envs": 0.9, "learner": 0.0}))
    assert asleep.part == "emulation"
    assert "the learner works 20 %" in asleep.sentence
    assert find_bottleneck(processes(learner={"actors": 0.5}, actor={"envs": 0.1, "learner": 0.05})).part == "acting"
    assert find_bottleneck(processes(learner={"actors": 0.5}, actor={"envs": 0.1, "learner": 0.5})).part == "waiting"


def test_without_windows_nothing_is_claimed() -> None:
    assert find_bottleneck([]).part == "unknown"
