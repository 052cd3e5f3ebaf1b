"""What a user may say about the replay memory, and what the program makes of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from whole_runs import ONE_THREAD, UNWATCHED, play

from redline.algorithms.named.dqn import DQN
from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.jsonl import read_records
from redline.networks import Small
from redline.replay import ReplayConfig
from redline.replay.sampler import Prioritized
from redline.runtime.config import Job, Limits
from redline.runtime.launch import resume_run, start_run
from redline.runtime.replay_sizing import pacing_of, replay_layout
from redline.runtime.resolve import resolve_job, share_out
from redline.runtime.resuming import read_run

CATCH = EnvConfig("redline/Catch-v0", skip=1)


def catch(log_dir: Path, *, max_steps: int = 600, **replay: Any) -> Job:
    algorithm = replace(DQN, network=Small(), warmup_steps=10_000, replay=ReplayConfig(**replay))
    return Job(
        monitor=UNWATCHED,
        env=CATCH,
        algorithm=algorithm,
        log_dir=log_dir,
        limits=Limits(max_steps=max_steps),
        **ONE_THREAD,
    )


def small_budget(log_dir: Path) -> int:
    """Return the fewest bytes with which the job's memory works."""
    job = catch(log_dir, capacity=60_000)
    return replay_layout(
        job.algorithm, env_spec(CATCH), num_envs=job.num_envs, pacing=pacing_of(job, job.algorithm)
    ).min_bytes


def test_bytes_are_measured_said_and_kept_for_later(tmp_path: Path, listener: Any) -> None:
    run = play(start_run(catch(tmp_path, capacity=5_000), "dqn", listener))
    (note,) = (note for note in listener.notes if "replay.bytes" in note)
    assert "replay.bytes: auto → " in note
    assert read_run(run).job.algorithm.replay.bytes is None  # still for us to find
    manifest = json.loads((run / "checkpoints" / "600" / "manifest.json").read_text())
    budget = manifest["replay"]["budget_bytes"]
    assert f"{budget // 1_000_000}_" in note
    session = resume_run(read_run(run), read_run(run).job, listener)
    assert session.trainer.source.memory.layout.budget_bytes == budget  # not measured again
    session.__exit__()


@pytest.mark.parametrize("replay", [{"codec": "raw"}, {"bytes": 20_000_000}])
def test_nothing_is_measured_where_nothing_depends_on_it(replay: dict[str, Any], tmp_path: Path) -> None:
    settled = resolve_job(catch(tmp_path, capacity=5_000, **replay))
    assert settled.layout.budget_bytes == replay.get("bytes")
    assert not any("measured" in str(adjustment) for adjustment in settled.adjustments)


def test_raw_frames_that_will_not_fit_into_the_bytes_are_told_at_the_start(tmp_path: Path) -> None:
    settled = resolve_job(catch(tmp_path, capacity=20_000, codec="raw", bytes=40_000_000))
    assert [str(item) for item in settled.adjustments] == [
        f"replay.capacity: 20,000 → about {settled.layout.expected_transitions:,} (no more fit into --replay.bytes)"
    ]
    assert 3_000 < settled.layout.expected_transitions < 6_000


@pytest.mark.parametrize("change", [{"num_envs": 16}, {"num_envs": 2}, {"prefetch": 40}, {"codec": "raw"}])
def test_bytes_that_nobody_gave_refuse_no_change_on_resume(
    change: dict[str, Any], tmp_path: Path, listener: Any
) -> None:
    run = play(start_run(catch(tmp_path, capacity=3_000), "dqn", listener))
    saved = read_run(run)
    num_envs = change.pop("num_envs", saved.job.num_envs)
    replay = replace(saved.job.algorithm.replay, **change)
    job = replace(saved.job, num_envs=num_envs, algorithm=replace(saved.job.algorithm, replay=replay))
    job = share_out(job, ["num-envs"])
    session = resume_run(saved, replace(job, limits=Limits(max_steps=1_200)), listener)
    play(session)
    assert session.trainer.counters.steps >= 1_200
    assert session.trainer.source.memory.num_transitions > 1_100


def test_bytes_that_were_given_stay_on_resume(tmp_path: Path, listener: Any) -> None:
    run = play(start_run(catch(tmp_path, capacity=3_000, bytes=20_000_000), "dqn", listener))
    saved = read_run(run)
    replay = replace(saved.job.algorithm.replay, capacity=2_500, codec="raw")
    session = resume_run(saved, replace(saved.job, algorithm=replace(saved.job.algorithm, replay=replay)), listener)
    assert session.trainer.source.memory.layout.budget_bytes == 20_000_000
    session.__exit__()


def test_a_budget_reached_before_the_capacity_is_said_once_and_written_down(tmp_path: Path, listener: Any) -> None:
    budget = small_budget(tmp_path)
    job = catch(tmp_path, max_steps=30_000, capacity=60_000, codec="raw", bytes=budget * 4)
    job = replace(job, algorithm=replace(job.algorithm, warmup_steps=30_000))  # only filling matters here
    session = start_run(job, "dqn", listener)
    run = play(session)
    full = [note for note in listener.notes if "its bytes are full" in note]
    assert len(full) == 1
    assert "requested → effective: replay.capacity: 60,000 → about" in full[0]
    assert "its bytes are full; see --replay.bytes" in full[0]
    assert session.trainer.source.memory.num_transitions < 30_000
    events = [row for row in read_records(run / "events.jsonl") if row["event"] == "adjustment"]
    assert [event["message"] in full[0] for event in events] == [True]


def test_too_few_bytes_are_refused_with_what_would_do(tmp_path: Path, listener: Any) -> None:
    with pytest.raises(UserError, match=r"10_000 bytes are too few .*: use --replay.bytes [0-9_]+ or more"):
        start_run(catch(tmp_path, capacity=5_000, bytes=10_000), "dqn", listener)
    assert not list(tmp_path.rglob("run.json"))


def test_more_bytes_than_there_are_is_refused_before_anything_is_allocated(tmp_path: Path, listener: Any) -> None:
    remedy = r"use --replay.capacity [0-9_]+ or --replay.bytes [0-9_]+$"
    with pytest.raises(UserError, match=rf"replay needs [0-9.]+ GB, [0-9.]+ GB is free: {remedy}"):
        start_run(catch(tmp_path, capacity=10**9, bytes=10**12), "dqn", listener)


def test_bytes_beyond_what_frames_can_fill_are_not_asked_of_the_machine(tmp_path: Path, listener: Any) -> None:
    session = start_run(catch(tmp_path, capacity=2_000, bytes=10**12), "dqn", listener)
    assert session.trainer.source.memory.layout.num_bytes < 40_000_000
    play(session)


def test_frames_on_disk_train_like_frames_in_memory(tmp_path: Path, listener: Any) -> None:
    jobs = catch(tmp_path, capacity=2_000), catch(tmp_path, capacity=2_000, path=tmp_path / "ssd")
    weights = []
    for job in jobs:
        learning = replace(job.algorithm, warmup_steps=300)
        run = play(start_run(replace(job, algorithm=learning), "dqn", listener))
        weights.append((run / "checkpoints" / "600" / "weights.safetensors").read_bytes())
    assert weights[0] == weights[1]
    assert list((tmp_path / "ssd").iterdir()) == []


def test_codec_and_place_may_change_on_resume(tmp_path: Path, listener: Any) -> None:
    run = play(start_run(catch(tmp_path, capacity=2_000, prefetch=2), "dqn", listener))
    saved = read_run(run)
    replay = replace(saved.job.algorithm.replay, codec="lz4", path=tmp_path / "ssd")
    job = replace(saved.job, algorithm=replace(saved.job.algorithm, replay=replay), limits=Limits(max_steps=1_200))
    session = resume_run(saved, job, listener)
    assert session.trainer.source.memory.num_transitions == 600
    assert session.trainer.source.memory.layout.effective_codec == "lz4"
    play(session)
    assert session.trainer.source.memory.num_transitions == 1_200
    assert any("replay.bytes: auto →" in note for note in listener.notes[-20:])


def test_priorities_move_away_from_where_they_began(tmp_path: Path, listener: Any) -> None:
    job = catch(tmp_path, capacity=2_000)
    algorithm = replace(job.algorithm, sample=Prioritized(), warmup_steps=200)
    session = start_run(replace(job, algorithm=algorithm), "dqn", listener)
    play(session)
    priorities = session.trainer.source.sampler.priorities()  # type: ignore[attr-defined]
    assert len(priorities) == session.trainer.source.memory.num_sampleable
    assert len(set(priorities.tolist())) > 100
