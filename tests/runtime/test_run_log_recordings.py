"""The recordings of real runs: each episode that counts has one, in both topologies, over resumes, and comes back."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from redline.cli.main import DONE, RESUMABLE, main
from redline.envs.catalog import register_env
from redline.episodes.episode import Address
from redline.episodes.library import Library, open_library
from redline.episodes.tracing import FIRST_ROOM
from redline.episodes.verifying import verify
from redline.jsonl import Row, read_records
from redline.runs.directory import RECORDINGS
from redline.runtime.playing import EvaluationConfig, play_policy
from redline.runtime.processes import shared
from redline.types import FloatArray
from waiting import wait_for

StartProgram = Callable[..., "subprocess.Popen[str]"]

# short games, played at random
BREAKOUT = ("--env", "breakout", "--warmup-steps", "1_000_000", "--replay.capacity", "5000", "--num-envs", "4")
CATCH = (
    *("--env", "redline/Catch-v0", "--network", "small", "--warmup-steps", "200"),
    *("--replay.capacity", "1000", "--samples-per-step", "1"),
)
CARTPOLE = ("--env", "CartPole-v1", "--warmup-steps", "1_000_000", "--replay.capacity", "1000", "--num-envs", "2")
QUIET = ("--monitor.hz", "0", "--plain")
ASYNC = ("--topology", "async", "--actors", "2", "--evaluator.every-minutes", "0")


def train(log_dir: Path, *args: str) -> Path:
    assert main(["train", *args, *QUIET, "--log-dir", str(log_dir)]) == DONE
    (run,) = log_dir.glob("*/*/*")
    return run


def assert_every_episode_comes_back(run: Path, *, at_least: int) -> Library:
    """Compare the rows of a run with its recordings, one to one, and play all of these again."""
    library = open_library(run)
    assert library.damages == []
    rows = read_records(run / "episodes.jsonl")
    addresses = [Address(row["role"], row["lane"], row["seed"], row["seed_offset_steps"]) for row in rows]
    assert len(set(addresses)) == len(rows) >= at_least
    for row, address in zip(rows, addresses, strict=True):
        entry = library.find(address)
        assert entry is not None
        assert (entry.steps, entry.header.length_steps, entry.header.total_reward) == (
            row["steps"],
            row["length_steps"],
            row["return"],
        )
    assert [verdict.mismatch for verdict in verify(library, library.entries, threads=2)] == [None] * len(
        library.entries
    )
    return library


class Long(gymnasium.Env[FloatArray, np.int64]):
    """Ends after more steps than a tracer has room for at first."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps = FIRST_ROOM + 50

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = self.steps
        return np.ones(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        return np.full(1, self._left / self.steps, np.float32), float(action), self._left == 0, False, {}


def test_values_of_long_episodes_in_the_warm_up_and_after_a_resume(tmp_path: Path) -> None:
    register_env("test/Long", Long)
    flags = ("--env", "test/Long", "--num-envs", "1", "--warmup-steps", str(Long.steps + 20), "--record-values")
    run = train(tmp_path, *flags, "--max-steps", str(2 * Long.steps - 1))
    assert main(["resume", str(run), "--max-steps", str(2 * Long.steps), "--plain"]) == DONE
    library = assert_every_episode_comes_back(run, at_least=2)
    first, second = (library.load(entry).values for entry in library.entries)
    assert first is not None
    assert np.isnan(first).all()  # it was played at random
    assert second is not None
    assert np.isfinite(second[-1]).all()
    assert len(first) == len(second) == Long.steps


def test_an_inline_run_and_its_evaluations(tmp_path: Path) -> None:
    greedy = ("--evaluate-every-steps", "400", "--evaluator.episodes", "2", "--record-values")
    run = train(tmp_path, *CATCH, *greedy, "--max-steps", "800")
    library = assert_every_episode_comes_back(run, at_least=40)
    assert sum(entry.address.role == "greedy" for entry in library.entries) == 4
    assert {entry.played.evaluation for entry in library.entries} == {None, 1, 2}
    values = [library.load(entry).values for entry in library.entries]
    assert all(value is not None for value in values)
    assert library.settings[0].values == "q"


def test_an_async_run(tmp_path: Path) -> None:
    run = train(tmp_path, *BREAKOUT, *ASYNC, "--max-steps", "3000")
    library = assert_every_episode_comes_back(run, at_least=5)
    assert {entry.address.lane for entry in library.entries} == {0, 1, 2, 3}


@pytest.mark.parametrize("topology", [(), ASYNC])
def test_a_run_that_was_killed_and_resumed_counts_and_records_each_episode_once(
    topology: tuple[str, ...], start_program: StartProgram, tmp_path: Path
) -> None:
    """Inline the episodes under way go on in the same game, from the same key."""
    args = (*BREAKOUT, *topology, *QUIET, "--log-dir", tmp_path, "--checkpoint-minutes", "0.02")
    program = start_program("train", *args)
    wait_for(lambda: len(list(tmp_path.glob("*/*/*/checkpoints/*/manifest.json"))) > 2, "it saves checkpoints")
    program.kill()
    program.communicate()
    (run,) = tmp_path.glob("*/*/*")
    before = len(open_library(run).entries)
    newest = max(int(path.parent.name) for path in run.glob("checkpoints/[0-9]*/manifest.json"))
    assert main(["resume", str(run), "--max-steps", str(newest + 2_000), "--plain"]) == DONE
    library = assert_every_episode_comes_back(run, at_least=5)
    assert len(library.entries) >= before // 2
    if not topology:
        under_way = [
            entry for entry in library.entries if entry.header.actions_from == 0 and entry.address.seed_offset_steps > 0
        ]
        assert under_way  # the first of a lane after a resume needs no record from before it


def test_only_what_is_asked_for_is_recorded(tmp_path: Path) -> None:
    off = train(tmp_path / "off", *CARTPOLE, "--max-steps", "600", "--record", "off")
    assert not (off / RECORDINGS).exists()
    tenth = open_library(train(tmp_path / "tenth", *CARTPOLE, "--max-steps", "1200", "--record", "10"))
    rows = read_records(next((tmp_path / "tenth").glob("*/*/*")) / "episodes.jsonl")
    assert len(tenth.entries) == -(-len(rows) // 10)
    best = open_library(train(tmp_path / "best", *CARTPOLE, "--max-steps", "1200", "--record", "best"))
    returns = [entry.header.total_reward for entry in best.entries]
    assert returns == sorted(set(returns))


def test_the_policy_of_a_checkpoint_plays_afresh_and_is_recorded(tmp_path: Path) -> None:
    run = train(tmp_path, *CATCH, "--max-steps", "400")
    before = (run / RECORDINGS).read_bytes()
    config = EvaluationConfig(episodes=3, num_envs=2, seed=5)
    first = play_policy(run, config, progress=lambda _: None, requested_stop=lambda: None)
    again = play_policy(run, config, progress=lambda _: None, requested_stop=lambda: None)
    assert len(first) == 3
    assert [entry.address for entry in first] == [entry.address for entry in again]
    assert [entry.header.total_reward for entry in first] == [entry.header.total_reward for entry in again]
    library = open_library(run)
    assert [verdict.mismatch for verdict in verify(library, again, threads=1)] == [None] * 3
    assert all(entry.address.role == "policy" and entry.header.values_per_step for entry in again)
    assert (run / RECORDINGS).read_bytes() == before


def test_an_async_run_that_is_stopped_has_recorded_all_that_counts(main_beside: Any, tmp_path: Path) -> None:
    def rows() -> list[Row]:
        return [row for path in tmp_path.glob("*/*/*/episodes.jsonl") for row in read_records(path)]

    def stop(send: Any) -> None:
        wait_for(lambda: len(rows()) > 100, "a hundred episodes are played")
        send(signal.SIGTERM)

    assert main_beside(stop, ("train", *CARTPOLE, *ASYNC, "--plain", "--log-dir", tmp_path)) == RESUMABLE
    (run,) = tmp_path.glob("*/*/*")
    assert_every_episode_comes_back(run, at_least=100)


def test_an_episode_too_large_for_its_ring_counts_without_a_recording_and_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shared, "mail_bytes", lambda *_, **__: 200)
    run = train(tmp_path, *CARTPOLE, *ASYNC, "--actors", "1", "--push", "chunk", "--max-steps", "1000")
    assert len(read_records(run / "episodes.jsonl")) > 10
    assert not (run / RECORDINGS).exists() or not open_library(run).entries
    (warning,) = (row["message"] for row in read_records(run / "events.jsonl") if row["event"] == "warning")
    assert "more than 100: such episodes count, but are not recorded" in warning
    assert capsys.readouterr().out.count(warning) == 1


def test_a_run_goes_on_beside_a_file_that_is_no_file_of_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tmp_path, *CARTPOLE, "--max-steps", "200")
    (run / RECORDINGS).write_bytes(b"something else")
    assert main(["resume", str(run), "--max-steps", "600", "--plain"]) == DONE
    assert "is not a file of recordings" in capsys.readouterr().out
    assert len(list((run / RECORDINGS).parent.glob("episodes.unreadable-*.rec"))) == 1
    assert open_library(run).entries


def test_a_run_that_can_not_record_says_so_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path, *CARTPOLE, "--max-steps", "200", "--record", "off")
    (run / RECORDINGS).parent.write_bytes(b"a file where a folder should be")
    assert main(["resume", str(run), "--max-steps", "600", "--record", "all", "--plain"]) == DONE
    assert "warning: no episode is recorded" in capsys.readouterr().out
    assert len(read_records(run / "episodes.jsonl")) > 10
