"""Stop anywhere, resume, and nothing is different: bit for bit where that is promised, in so many words where not."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file as load_tensors
from safetensors.torch import save as encode_tensors
from whole_runs import ONE_THREAD, UNWATCHED, play

from redline.algorithms.named.dqn import DQN, DQN_CLASSIC
from redline.envs.config import EnvConfig
from redline.errors import DamagedError, UserError
from redline.jsonl import read_records
from redline.networks import Small
from redline.replay import ReplayConfig, ReplayError
from redline.replay.sampler import Prioritized, Sampling, Uniform
from redline.runs.manifest import describe_file, encode_json, encode_manifest, read_manifest
from redline.runtime.config import Job, Limits
from redline.runtime.gauges import Display, NoDisplay
from redline.runtime.launch import resume_run, start_run
from redline.runtime.resolve import share_out
from redline.runtime.resuming import MAY_CHANGE, read_run
from redline.runtime.session import StoppedWhileResumingError

EVERYTHING = ("weights", "target", "optimizer", "arrays")


def cartpole(log_dir: Path, **changes: Any) -> Job:
    algorithm = replace(DQN_CLASSIC, warmup_steps=200, replay=ReplayConfig(capacity=1_000), samples_per_step=16.0)
    job = Job(
        monitor=UNWATCHED,
        env=EnvConfig("CartPole-v1", stack=1, skip=1),
        algorithm=algorithm,
        log_dir=log_dir,
        num_envs=4,
    )
    return replace(job, limits=Limits(max_steps=2_000), **ONE_THREAD, **changes)


def pong(log_dir: Path, **changes: Any) -> Job:
    # episodes of 50 steps, so that lanes end, restart and are evicted many times
    env = EnvConfig("ALE/Pong-v5", size=40, max_episode_frames=200)
    algorithm = replace(DQN, network=Small(), warmup_steps=100, replay=ReplayConfig(capacity=400))
    job = Job(monitor=UNWATCHED, env=env, algorithm=algorithm, log_dir=log_dir, num_envs=3)
    return replace(job, limits=Limits(max_steps=900), **ONE_THREAD, **changes)


def checkpoint_bytes(run: Path, steps: int) -> dict[str, bytes]:
    return {name: (run / "checkpoints" / str(steps) / f"{name}.safetensors").read_bytes() for name in EVERYTHING}


def episodes(run: Path) -> list[dict[str, Any]]:
    timeless = ("steps", "return", "length_steps", "lane", "seed", "seed_offset_steps")
    return [{key: row[key] for key in timeless} for row in read_records(run / "episodes.jsonl")]


@pytest.mark.parametrize(
    ("make_job", "prefetch", "sample"),
    [
        *((cartpole, prefetch, sample) for prefetch in (0, 3) for sample in (Uniform(), Prioritized())),
        (pong, 3, Prioritized()),
        pytest.param(pong, 0, Uniform(), marks=pytest.mark.slow),
        pytest.param(pong, 3, Uniform(), marks=pytest.mark.slow),
        pytest.param(pong, 0, Prioritized(), marks=pytest.mark.slow),
    ],
)
def test_a_run_stopped_midway_and_resumed_ends_bit_for_bit_like_a_whole_one(
    make_job: Callable[..., Job], prefetch: int, sample: Sampling, tmp_path: Path, listener: Display
) -> None:
    job = make_job(tmp_path)
    replay = replace(job.algorithm.replay, prefetch=prefetch)
    job = replace(job, algorithm=replace(job.algorithm, replay=replay, sample=sample))
    total = job.limits.max_steps or 0
    whole = play(start_run(job, "dqn", listener))
    parts = play(start_run(job, "dqn", listener), until_steps=total // 3)
    for stop_at in (total // 2, None):
        saved = read_run(parts)
        play(resume_run(saved, saved.job, listener), until_steps=stop_at)
    assert checkpoint_bytes(whole, total) == checkpoint_bytes(parts, total)
    assert episodes(whole) == episodes(parts)
    assert len(episodes(whole)) > 8
    assert not any("not bit-exact" in note for note in listener.notes)  # type: ignore[attr-defined]


def test_the_seed_decides_everything(tmp_path: Path, listener: Display) -> None:
    first, again, other = (
        checkpoint_bytes(play(start_run(cartpole(tmp_path, seed=seed), "dqn", listener)), 2_000) for seed in (1, 1, 2)
    )
    assert first == again
    assert first["weights"] != other["weights"]


def test_another_number_of_envs_cuts_the_episodes_under_way_and_goes_on(tmp_path: Path, listener: Display) -> None:
    run = play(start_run(cartpole(tmp_path), "dqn", listener), until_steps=1_000)
    saved = read_run(run)
    session = resume_run(saved, share_out(replace(saved.job, num_envs=8), ["num-envs"]), listener)
    held = session.trainer.source.memory.num_transitions
    play(session)
    assert held > 900
    assert session.trainer.counters.steps == 2_000
    assert any("4 envs became 8" in note for note in listener.notes)  # type: ignore[attr-defined]
    # lanes of the new envs have keys of their own: nothing that was played is played again
    seeds = [row["seed"] for row in episodes(run)]
    assert len(seeds) == len(set(seeds))


def test_another_batch_size_keeps_the_samples_per_step(tmp_path: Path, listener: Display) -> None:
    run = play(start_run(cartpole(tmp_path), "dqn", listener), until_steps=1_000)
    saved = read_run(run)
    session = resume_run(saved, replace(saved.job, algorithm=replace(saved.job.algorithm, batch_size=32)), listener)
    play(session)
    counters = session.trainer.counters
    assert session.trainer.source.pacing.achieved(steps=counters.steps, samples=counters.samples) == pytest.approx(
        16, rel=0.02
    )


@pytest.mark.parametrize("capacity", [980, 940, 600])
def test_a_smaller_replay_draws_anew_what_was_drawn_ahead(capacity: int, tmp_path: Path, listener: Display) -> None:
    job = cartpole(tmp_path)
    ahead = replace(job.algorithm, replay=ReplayConfig(capacity=1_000, prefetch=24))
    run = play(start_run(replace(job, algorithm=ahead), "dqn", listener), until_steps=1_600)
    saved = read_run(run)
    smaller = replace(ahead, replay=ReplayConfig(capacity=capacity, prefetch=24))
    session = resume_run(saved, replace(saved.job, algorithm=smaller), listener)
    play(session)
    assert session.trainer.counters.steps == 2_000
    assert any("24 batches drawn ahead are drawn anew" in note for note in listener.notes)  # type: ignore[attr-defined]


def test_a_stop_while_the_envs_come_back_leaves_the_checkpoint_as_it_was(tmp_path: Path, listener: Display) -> None:
    run = play(start_run(cartpole(tmp_path), "dqn", listener), until_steps=500)
    before = checkpoint_bytes(run, 500)
    saved = read_run(run)
    with pytest.raises(StoppedWhileResumingError, match="SIGTERM"):
        resume_run(saved, saved.job, listener, lambda: "SIGTERM")
    assert checkpoint_bytes(run, 500) == before
    play(resume_run(saved, saved.job, listener), until_steps=600)


def test_what_can_not_change_is_refused_by_name(tmp_path: Path, listener: Display) -> None:
    run = play(start_run(cartpole(tmp_path), "dqn", listener), until_steps=100)
    saved = read_run(run)
    with pytest.raises(UserError, match="--seed can't change on resume"):
        resume_run(saved, replace(saved.job, seed=5), listener)


def test_a_run_in_use_is_refused(tmp_path: Path, listener: Display) -> None:
    with start_run(cartpole(tmp_path), "dqn", listener) as session:
        saved = read_run(session.run.path)
        with pytest.raises(UserError, match="in use by process"):
            resume_run(saved, saved.job, listener)


def test_a_damaged_checkpoint_is_skipped_and_said(tmp_path: Path, listener: Display) -> None:
    run = play(start_run(cartpole(tmp_path), "dqn", listener), until_steps=500)
    (run / "checkpoints" / "500" / "weights.safetensors").write_bytes(b"torn")
    saved = read_run(run)
    play(resume_run(saved, saved.job, listener))
    assert any("checkpoint 500 skipped" in note for note in listener.notes)  # type: ignore[attr-defined]
    # everything after step 0 was taken back and played again, bit for bit
    assert [row["steps"] for row in episodes(run)] == sorted(row["steps"] for row in episodes(run))
    assert checkpoint_bytes(run, 2_000) == checkpoint_bytes(play(start_run(saved.job, "dqn", listener)), 2_000)
    lost = read_records(run / "episodes.lost.jsonl")
    assert lost
    assert all(row["steps"] <= 500 for row in lost)


def test_damaged_replay_costs_experience_and_no_weights(tmp_path: Path, listener: Display) -> None:
    run = play(start_run(cartpole(tmp_path), "dqn", listener), until_steps=1_000)
    weights = checkpoint_bytes(run, 1_000)["weights"]
    segment = sorted((run / "replay").iterdir())[0]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    session = resume_run(read_run(run), read_run(run).job, listener)
    assert session.trainer.counters.steps == 1_000
    assert session.trainer.source.memory.num_transitions < 1_000
    assert encode_tensors(session.trainer.learner.state()["weights"]) == weights
    assert any("transitions of the saved replay are damaged" in note for note in listener.notes)  # type: ignore[attr-defined]
    play(session)
    assert session.trainer.counters.steps == 2_000


# A stranger can give a checkpoint any content, with checksums that fit


def remake(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Change one file of a checkpoint, or what its manifest says of the replay; all checksums are right again."""
    manifest = read_manifest(folder)
    if name == "replay":
        manifest["replay"] = change(manifest["replay"])
    else:
        path = folder / name
        is_json = path.suffix == ".json"
        changed = change(json.loads(path.read_text()) if is_json else load_tensors(path))
        path.write_bytes(encode_json(changed) if is_json else encode_tensors(changed))
        manifest["files"][name] = describe_file(path.read_bytes())
    facts = {key: manifest[key] for key in ("steps", "score", "files", "replay")}
    (folder / "manifest.json").write_bytes(encode_manifest(**facts))


Tensors = dict[str, torch.Tensor]


def of_another_shape(tensors: Tensors) -> Tensors:
    return {name: torch.zeros(7, 7) for name in tensors}


def with_nan(tensors: Tensors) -> Tensors:
    return {name: torch.full_like(value, float("nan")) for name, value in tensors.items()}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("state.json", lambda state: state | {"recent_returns": "x"}),
        ("state.json", lambda state: state | {"recent_returns": [[1]]}),
        ("state.json", lambda state: state | {"counters": []}),
        ("state.json", lambda state: {key: state[key] for key in state if key != "counters"}),
        ("state.json", lambda state: state | {"num_envs": "many"}),
        ("state.json", lambda state: state | {"env_seed": -7}),
        ("state.json", lambda _: {}),
        ("state.json", lambda state: state | {"counters": state["counters"] | {"updates": 10**30}}),
        ("state.json", lambda state: state | {"counters": state["counters"] | {"steps": 20}}),
        ("optimizer.safetensors", lambda _: {}),
        ("optimizer.safetensors", of_another_shape),
        ("optimizer.safetensors", with_nan),
        ("weights.safetensors", lambda _: {}),
        ("weights.safetensors", of_another_shape),
        ("weights.safetensors", with_nan),
        ("arrays.safetensors", lambda _: {}),
        ("arrays.safetensors", of_another_shape),
        ("replay", lambda _: {}),
        ("replay", lambda replay: replay | {"blocks": 5}),
        ("replay", lambda replay: replay | {"heads": {}}),
        ("replay", lambda replay: replay | {"lanes": "x"}),
        ("replay", lambda replay: replay | {"frames_per_chunk": -1}),
        ("replay", lambda replay: replay | {"capacity": 10**30}),
        ("replay", lambda replay: replay | {"blocks": [5]}),
        ("replay", lambda replay: replay | {"unsealed": replay["unsealed"] | {"chunk": []}}),
    ],
)
def test_checkpoint_remade_with_wrong_content_is_refused(
    name: str, change: Callable[[Any], Any], stopped_run: Path, tmp_path: Path, listener: Display
) -> None:
    run = tmp_path / "run"
    shutil.copytree(stopped_run, run)
    remake(run / "checkpoints" / "500", name, change)
    saved = read_run(run)
    with pytest.raises((UserError, ReplayError)):
        resume_run(saved, saved.job, listener)


def without(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: value for name, value in tensors.items() if name not in names}


DRAWS = ("draws.lane", "draws.number", "draws.weight")


def with_empty(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: tensors[name][:0]}


@pytest.mark.parametrize("name", DRAWS)
def test_columns_of_draws_must_match(name: str, run_ahead: Path, tmp_path: Path, listener: Display) -> None:
    run = tmp_path / "run"
    shutil.copytree(run_ahead, run)
    remake(run / "checkpoints" / "500", "arrays.safetensors", with_empty(name))
    saved = read_run(run)
    with pytest.raises(DamagedError, match="does not hold what Redline writes"):
        resume_run(saved, saved.job, listener)


@pytest.mark.parametrize("names", [DRAWS[:1], DRAWS[1:2], DRAWS[2:], DRAWS])
def test_a_checkpoint_that_lacks_what_was_drawn_ahead_is_refused(
    names: tuple[str, ...], run_ahead: Path, tmp_path: Path, listener: Display
) -> None:
    run = tmp_path / "run"
    shutil.copytree(run_ahead, run)
    remake(run / "checkpoints" / "500", "arrays.safetensors", without(*names))
    saved = read_run(run)
    with pytest.raises(DamagedError, match=r"does not hold what Redline writes .*KeyError"):
        resume_run(saved, saved.job, listener)


def test_where_nothing_is_drawn_ahead_a_checkpoint_may_lack_it(
    stopped_run: Path, tmp_path: Path, listener: Display
) -> None:
    run = tmp_path / "run"
    shutil.copytree(stopped_run, run)
    assert set(DRAWS) <= load_tensors(run / "checkpoints" / "500" / "arrays.safetensors").keys()
    remake(run / "checkpoints" / "500", "arrays.safetensors", without(*DRAWS))
    saved = read_run(run)
    with resume_run(saved, saved.job, listener) as session:
        assert session.trainer.counters.steps == 500


@pytest.fixture(scope="module")
def run_ahead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = cartpole(tmp_path_factory.mktemp("ahead"))
    job = replace(job, algorithm=replace(job.algorithm, replay=ReplayConfig(capacity=1_000, prefetch=2)))
    return play(start_run(job, "dqn", NoDisplay()), until_steps=500)


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(start_run(cartpole(tmp_path_factory.mktemp("runs")), "dqn", NoDisplay()), until_steps=500)


def test_every_setting_that_may_change_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "resume.md").read_text(encoding="utf-8")
    table = text.split("## What may change")[1].split("\n## ")[0]
    documented = {flag for flag in MAY_CHANGE if f"`--{flag.replace('_', '-')}`" in table}
    assert documented == MAY_CHANGE


def test_counters_and_scores_of_the_checkpoint_agree_with_the_records(tmp_path: Path, listener: Display) -> None:
    run = play(start_run(cartpole(tmp_path), "dqn", listener))
    state = json.loads((run / "checkpoints" / "2000" / "state.json").read_text())
    rows = episodes(run)
    assert state["counters"]["episodes"] == len(rows)
    assert state["recent_returns"] == [row["return"] for row in rows][-100:]
    assert state["best_return"] == max(row["return"] for row in rows)
