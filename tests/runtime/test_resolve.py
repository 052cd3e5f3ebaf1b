"""Who runs where: what is filled in, what is refused, and what a resume takes over."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from redline.algorithms.named.dqn import DQN_CLASSIC
from redline.algorithms.named.ppo import PPO_CLASSIC
from redline.algorithms.optimizers import Adam
from redline.cli.flags import parse_train
from redline.cli.train import parse_resume
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.runs.host import usable_cores
from redline.runtime import resolve
from redline.runtime.building import prepare_process
from redline.runtime.config import ActorConfig, EvaluatorConfig, Job, LearnerConfig, Limits
from redline.runtime.resolve import carry_over, resolve_job
from redline.runtime.resuming import changed_settings, check_changes, inexact_because

ANNEALED = replace(DQN_CLASSIC, optimizer=Adam(anneal_steps=9, anneal_after_steps=9))
CARTPOLE = ("--env", "CartPole-v1", "--device", "cpu")


def trained(*flags: str) -> Job:
    """Return the job that `redline train` with these flags runs, as run.json would hold it."""
    return resolve_job(parse_train([*CARTPOLE, *flags]).job).job


def resumed(before: Job, *flags: str) -> tuple[Job, list[str]]:
    """Return the job that `redline resume` with these flags runs, and what it says."""
    job = parse_resume(before, ["last", *flags]).job
    check_changes(before, job)
    job, given_up = carry_over(before, job)
    settled = resolve_job(job)
    return settled.job, [str(item) for item in given_up + settled.adjustments]


def test_nothing_is_left_open() -> None:
    for flags in ((), ("--topology", "async", "--actors", "2")):
        job = trained(*flags)
        assert job.actor.envs * job.actors == job.num_envs == 8
        assert job.learner.threads == 1
        assert job.actor.threads == min(usable_cores(), job.actor.envs)
        assert (job.actor.device, job.learner.device, job.evaluator.device) == ("cpu", "cpu", "cpu")
    assert trained().evaluator.every_minutes == 0.0
    assert trained("--topology", "async").evaluator.every_minutes == 5.0
    assert trained("--topology", "async", "--evaluator.every-minutes", "0").evaluator.every_minutes == 0.0


def test_limits_of_several_actors_are_not_rounded_so_a_resume_keeps_them() -> None:
    job = replace(trained("--topology", "async"), limits=Limits(max_steps=10_000, max_frames=20_001))
    for steps in (0, 3, 1_001):
        resolved = resolve_job(job, steps=steps)
        assert resolved.job.limits == job.limits


def test_what_is_settled_stays_as_it_is() -> None:
    for flags in ((), ("--topology", "async", "--actors", "2"), ("--topology", "async", "--pacing", "lockstep")):
        assert resolve_job(trained(*flags)).job == trained(*flags)


def test_the_learner_of_pictures_has_all_cores() -> None:
    flags = parse_train(["--env", "redline/Catch-v0", "--replay.codec", "raw"])
    assert resolve_job(flags.job).job.learner.threads == usable_cores()


@pytest.mark.parametrize(
    ("flags", "shared"),
    [
        ("--actors 4", (8, 4, 2)),
        ("--actors 4 --actor.envs 1", (4, 4, 1)),
        ("--actor.envs 3", (3, 1, 3)),
        ("--actors 2 --num-envs 6", (6, 2, 3)),
        ("--actors 2 --num-envs 6 --actor.envs 3", (6, 2, 3)),
        ("--actor.envs=2 --actors=3", (6, 3, 2)),
    ],
)
def test_envs_are_shared_out(flags: str, shared: tuple[int, int, int]) -> None:
    job = trained("--topology", "async", *flags.split())
    assert (job.num_envs, job.actors, job.actor.envs) == shared


def test_flags_override_how_a_file_shares_out(tmp_path: Path) -> None:
    config = tmp_path / "job.toml"
    config.write_text('topology = "async"\nactors = 2\n[actor]\nenvs = 3\n')
    named = ("--config", str(config))
    job = trained(*named)
    assert (job.num_envs, job.actors, job.actor.envs) == (6, 2, 3)
    job = trained(*named, "--num-envs", "8")
    assert (job.num_envs, job.actors, job.actor.envs) == (8, 2, 4)
    job = trained(*named, "--actor.envs", "1")
    assert (job.num_envs, job.actors, job.actor.envs) == (2, 2, 1)


def test_lockstep_has_the_newest_weights_at_every_step() -> None:
    settled = resolve_job(parse_train([*CARTPOLE, "--topology", "async", "--pacing", "lockstep"]).job)
    assert settled.job.actor.sync_steps == 1
    (said,) = settled.adjustments
    assert str(said).startswith("actor.sync-steps: 32 → 1 (")
    assert resolve_job(settled.job).adjustments == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actors": 2}, "--actors 2 needs actors in processes of their own: add --topology async"),
        ({"push": "chunk"}, "--push chunk needs .* add --topology async"),
        ({"pacing": "free"}, "--pacing free needs .* add --topology async"),
        ({"actor": ActorConfig(sync_steps=8)}, "--actor.sync-steps 8 needs .* add --topology async"),
        ({"evaluator": EvaluatorConfig(every_minutes=2.0)}, "every-minutes 2 needs .* use --evaluate-every-steps"),
        ({"actor": ActorConfig(envs=3)}, "--actors 1 × --actor.envs 3 are 3 envs, not --num-envs 8"),
        ({"topology": "async", "actors": 3}, "can't be shared out evenly among --actors 3: use --num-envs 9"),
        ({"topology": "async", "actors": 9}, "use --num-envs 9, or --actor.envs 1 in its place"),
        ({"topology": "async", "actors": 2, "actor": ActorConfig(envs=3)}, "are 6 envs, not --num-envs 8"),
        ({"topology": "async", "algorithm": PPO_CLASSIC}, "on-policy algorithm .* use --topology inline"),
        ({"topology": "async", "evaluate_every_steps": 9}, "use --evaluator.every-minutes"),
        ({"anneal_at_return": 9.0}, "--anneal-at-return 9 has nothing to begin: add --optimizer.anneal-steps"),
        (
            {"topology": "async", "algorithm": ANNEALED, "anneal_at_return": 9.0},
            "use --topology inline, or leave it out",
        ),
        (
            {
                "topology": "async",
                "limits": Limits(target_eval_return=1.0),
                "evaluator": EvaluatorConfig(every_minutes=0.0),
            },
            "every-minutes 0 plays none: leave it out",
        ),
        ({"topology": "async", "pacing": "lockstep", "actors": 2}, "use --actors 1, or --pacing held"),
        ({"topology": "async", "pacing": "lockstep", "push": "chunk"}, "use --push step, or --pacing held"),
        ({"learner": LearnerConfig(device="tpu")}, "learner.device 'tpu' is unknown"),
        ({"actor": ActorConfig(device="tpu")}, "actor.device 'tpu' is unknown"),
        ({"evaluator": EvaluatorConfig(device="tpu")}, "evaluator.device 'tpu' is unknown"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str) -> None:
    job = Job(env=EnvConfig("CartPole-v1", stack=1, skip=1), algorithm=DQN_CLASSIC)
    with pytest.raises(UserError, match=message):
        resolve_job(replace(job, **changes))


def test_async_is_refused_where_the_platform_is_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise UserError("not on this machine")

    monkeypatch.setattr(resolve, "check_platform", refuse)
    assert trained().topology == "inline"
    with pytest.raises(UserError, match="not on this machine"):
        trained("--topology", "async")


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch claim that it sees two GPUs; nothing is computed on them."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def devices(job: Job) -> tuple[str | None, ...]:
    return job.learner.device, job.actor.device, job.evaluator.device


@pytest.mark.usefixtures("two_gpus")
def test_device_is_that_of_the_learner_and_other_processes_stay_on_the_cpu() -> None:
    start = ("--env", "CartPole-v1", "--topology", "async")
    settled = resolve_job(parse_train([*start, "--learner.device", "cuda:1", "--device", "cpu"]).job)
    assert devices(settled.job) == ("cuda:1", "cpu", "cpu")
    assert settled.device == torch.device("cuda:1")
    assert devices(resolve_job(parse_train([*start, "--evaluator.device", "cuda:1"]).job).job) == (
        "cuda",
        "cpu",
        "cuda:1",
    )


@pytest.mark.usefixtures("two_gpus")
def test_batches_are_gathered_ahead_for_a_gpu() -> None:
    found = resolve_job(parse_train(["--env", "CartPole-v1"]).job)
    assert found.job.algorithm.replay is not None
    assert found.job.algorithm.replay.prefetch == 2
    assert "replay.prefetch: 0 → 2 (a GPU would wait while a batch is gathered)" in map(str, found.adjustments)
    asked = resolve_job(parse_train(["--env", "CartPole-v1", "--replay.prefetch", "1"]).job)
    assert asked.job.algorithm.replay is not None
    assert asked.job.algorithm.replay.prefetch == 1


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_gpu_computes_in_float32_unless_tf32_is_asked_for(is_allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not is_allowed
    flags = ["--learner.tf32"] if is_allowed else []
    prepare_process(resolve_job(parse_train(["--env", "CartPole-v1", "--device", "cpu", *flags]).job))
    assert torch.backends.cuda.matmul.allow_tf32 is is_allowed
    assert torch.backends.cudnn.allow_tf32 is is_allowed


@pytest.mark.usefixtures("two_gpus")
def test_the_process_works_on_the_gpu_of_its_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    prepare_process(resolve_job(parse_train(["--env", "CartPole-v1", "--device", "cuda:1"]).job))
    assert chosen == [torch.device("cuda:1")]


@pytest.mark.usefixtures("two_gpus")
def test_inline_has_one_place_for_all() -> None:
    before = trained("--learner.device", "cuda")
    assert devices(before) == ("cuda", "cuda", "cuda")
    assert devices(resumed(before, "--learner.device", "cuda:1")[0]) == ("cuda:1", "cuda:1", "cuda:1")
    assert devices(resumed(before, "--topology", "async")[0]) == ("cuda", "cpu", "cpu")
    for role in ("actor", "evaluator"):
        with pytest.raises(UserError, match=rf"--{role}.device cuda is not where the learner computes, cpu"):
            trained(f"--{role}.device", "cuda")


@pytest.mark.usefixtures("two_gpus")
def test_a_resume_on_another_device_moves_the_roles_that_had_none_of_their_own() -> None:
    before = trained("--topology", "async", "--learner.device", "cuda:1")
    assert devices(resumed(before, "--device", "cuda")[0]) == ("cuda:1", "cpu", "cpu")
    assert devices(resumed(before, "--actor.device", "cuda")[0]) == ("cuda:1", "cuda", "cpu")
    assert devices(resumed(before)[0]) == devices(before)


def test_a_resume_finds_its_device_anew_where_it_was_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as with_gpu:
        with_gpu.setattr(torch.cuda, "is_available", lambda: True)
        before = resolve_job(parse_train(["--env", "CartPole-v1"]).job).job
    assert devices(before) == ("cuda", "cuda", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices(resumed(before)[0]) == ("cpu", "cpu", "cpu")


@pytest.mark.parametrize(
    ("flags", "shared"),
    [
        ("", (8, 2, 4)),
        ("--actors 4", (8, 4, 2)),
        ("--actors 4 --actor.envs 4", (16, 4, 4)),
        ("--actor.envs 3", (6, 2, 3)),
        ("--num-envs 4", (4, 2, 2)),
        ("--topology inline", (8, 1, 8)),
        ("--topology inline --num-envs 4", (4, 1, 4)),
        ("--topology inline --actor.envs 5", (5, 1, 5)),
    ],
)
def test_a_resume_shares_out_again(flags: str, shared: tuple[int, int, int]) -> None:
    job, _ = resumed(trained("--topology", "async", "--actors", "2"), *flags.split())
    assert (job.num_envs, job.actors, job.actor.envs) == shared


def test_from_async_to_inline_all_that_is_given_up_is_said() -> None:
    flags = "--topology async --actors 2 --push chunk --pacing free --actor.sync-steps 8 --evaluator.every-minutes 3"
    job, said = resumed(trained(*flags.split()), "--topology", "inline")
    assert job == trained()
    why = "(--topology inline is one process)"
    assert said == [
        f"actors: 2 → 1 {why}",
        f"push: chunk → step {why}",
        f"pacing: free → held {why}",
        f"actor.sync-steps: 8 → 32 {why}",
    ]
    before = trained(*flags.split())
    assert resolve_job(carry_over(before, replace(before, topology="inline"))[0]).job == trained()


def test_what_is_typed_with_the_other_topology_is_refused_not_given_up() -> None:
    before = trained("--topology", "async", "--actors", "2")
    with pytest.raises(UserError, match="--actors 4 needs actors in processes of their own"):
        resumed(before, "--topology", "inline", "--actors", "4")
    with pytest.raises(UserError, match="use --evaluate-every-steps"):
        resumed(before, "--topology", "inline", "--evaluator.every-minutes", "1")


def test_from_inline_to_async_the_evaluator_plays_beside_training() -> None:
    before = trained("--evaluate-every-steps", "1000")
    job, said = resumed(before, "--topology", "async", "--actors", "2")
    assert (job.evaluate_every_steps, job.evaluator.every_minutes, job.actor.envs) == (0, 5.0, 4)
    assert said == ["evaluate-every-steps: 1000 → 0 (--topology async evaluates beside training)"]
    job, _ = resumed(before, "--topology", "async", "--evaluator.every-minutes", "0")
    assert job.evaluator.every_minutes == 0.0


@pytest.mark.usefixtures("two_gpus")
def test_from_async_to_inline_the_learners_device_counts() -> None:
    before = trained("--topology", "async", "--learner.device", "cuda", "--evaluator.device", "cuda:1")
    job, said = resumed(before, "--topology", "inline")
    assert devices(job) == ("cuda", "cuda", "cuda")
    assert said == ["evaluator.device: cuda:1 → cuda (--topology inline is one process)"]


def test_leaving_lockstep_looks_for_weights_as_usual() -> None:
    before = trained("--topology", "async", "--pacing", "lockstep")
    assert resumed(before)[0].actor.sync_steps == 1
    assert resumed(before, "--pacing", "held")[0].actor.sync_steps == 32
    assert resumed(before, "--pacing", "held", "--actor.sync-steps", "1")[0].actor.sync_steps == 1


def test_a_resume_says_why_it_is_not_exact() -> None:
    def reasons(before: Job, after: Job) -> list[str]:
        facts = {"host": {"cpu_model": "x"}, "device": "cpu"}
        facts["versions"] = dict.fromkeys(("torch", "numpy", "ale-py", "gymnasium"), "1")
        config = {"topology": after.topology, "pacing": after.pacing}
        return inexact_because(facts, {**facts, "config": config}, changed_settings(before, after))

    inline, actors = trained(), trained("--topology", "async", "--actors", "2")
    lockstep = trained("--topology", "async", "--pacing", "lockstep")
    no_order = "processes of --topology async have no fixed order"
    assert reasons(inline, trained("--evaluate-every-steps", "9", "--actor.threads", "1")) == []
    assert set(reasons(actors, inline)) == {"--topology changed", "--actors changed"}
    assert set(reasons(inline, actors)) == {"--topology changed", "--actors changed", no_order}
    assert reasons(actors, actors) == [no_order]
    assert reasons(lockstep, lockstep) == []
