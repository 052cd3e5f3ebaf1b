"""Recorded play comes back bit for bit, and what is not what was played is found out."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded_runs import play_at_random, write_recorded_run

from redline.envs.config import EnvConfig
from redline.episodes.episode import Trace
from redline.episodes.library import Library, list_episodes, open_library, recordings_path
from redline.episodes.replaying import StoppedWhilePlayingError
from redline.episodes.setting import SETTING
from redline.episodes.tracing import RecordingConfig
from redline.episodes.verifying import verify
from redline.runs.blocks import FILE_MAGIC, Block, encode_block, iterate_blocks

DOCUMENT = Path(__file__).parents[2] / "docs" / "recordings.md"

Played = list[tuple[int, Trace]]


@pytest.fixture(scope="module")
def breakout() -> Played:
    """Short games with sticky actions; three or so between two keys."""
    config, recording = EnvConfig(id="ALE/Breakout-v5"), RecordingConfig()
    return play_at_random(config, recording, episodes=9, seed_interval_steps=500)


def mismatches(library: Library) -> list[str | None]:
    return [verdict.mismatch for verdict in verify(library, library.entries, threads=2)]


@pytest.mark.parametrize("env_id", ["breakout", "ALE/Boxing-v5", "redline/Catch-v0", "CartPole-v1"])
@pytest.mark.parametrize("record", ["all", "2"])
def test_what_is_kept_comes_back(env_id: str, record: str, tmp_path: Path) -> None:
    # a game of boxing has 2 minutes
    config = EnvConfig(id=env_id, max_episode_frames=2_000)
    played = play_at_random(config, RecordingConfig(record=record), episodes=3, seed_interval_steps=300)
    run = write_recorded_run(tmp_path, played, env_id=env_id, max_episode_frames=2_000)
    library = open_library(run)
    assert len(library.entries) == 3
    assert mismatches(library) == [None] * 3


def test_the_best_so_far_come_back_with_what_was_played_between_them(tmp_path: Path) -> None:
    played = play_at_random(EnvConfig(id="breakout"), RecordingConfig(record="best"), episodes=2)
    library = open_library(write_recorded_run(tmp_path, played, env_id="breakout"))
    returns = [entry.header.total_reward for entry in library.entries]
    assert returns == sorted(set(returns))
    assert mismatches(library) == [None] * 2


def test_episodes_share_a_key_and_need_the_records_before_them(breakout: Played, tmp_path: Path) -> None:
    library = open_library(write_recorded_run(tmp_path, breakout, env_id="ALE/Breakout-v5"))
    assert mismatches(library) == [None] * 9
    chained = [entry for entry in library.entries if entry.header.actions_from > 0]
    assert chained
    for entry in chained:
        assert len(library.actions_since_seed(entry)) == entry.header.end_steps
        assert library.chain(entry)[0].header.actions_from == 0


def test_a_missing_record_costs_what_needs_it_and_is_said(breakout: Played, tmp_path: Path) -> None:
    first = next(place for place, (_, trace) in enumerate(breakout) if trace.actions_from > 0)
    needed = breakout[first][1]
    without = next(
        place
        for place, (_, trace) in enumerate(breakout)
        if trace.reset_seed == needed.reset_seed and trace.end_steps == needed.actions_from
    )
    run = write_recorded_run(tmp_path, breakout, env_id="ALE/Breakout-v5", unrecorded=(without,))
    library = open_library(run)
    verdicts = verify(library, library.entries, threads=2)
    wrong = {verdict.entry.address.reset_seed for verdict in verdicts if verdict.mismatch is not None}
    assert wrong == {needed.reset_seed}
    assert any(verdict.mismatch is not None and "is missing" in verdict.mismatch for verdict in verdicts)


def test_one_other_action_is_noticed(breakout: Played, tmp_path: Path) -> None:
    """Even one that was written by a program whose checksums all fit."""
    steps, trace = breakout[0]
    actions = trace.actions.copy()
    left, right = 3, 2
    actions[5] = left if actions[5] != left else right
    run = write_recorded_run(tmp_path, [(steps, replace(trace, actions=actions))], env_id="ALE/Breakout-v5")
    (mismatch,) = mismatches(open_library(run))
    assert mismatch is not None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"total_reward": 99.0}, "its return is"),
        ({"is_truncated": True}, "cut by a limit"),
    ],
)
def test_what_was_not_so_is_said(breakout: Played, changes: dict[str, object], said: str, tmp_path: Path) -> None:
    steps, trace = breakout[0]
    run = write_recorded_run(tmp_path, [(steps, replace(trace, **changes))], env_id="ALE/Breakout-v5")  # type: ignore[arg-type]
    (mismatch,) = mismatches(open_library(run))
    assert mismatch is not None
    assert said in mismatch


def test_other_pixels_and_other_rewards_are_told_apart(breakout: Played, tmp_path: Path) -> None:
    steps, trace = breakout[0]
    for column, said in (
        (0, "the observation at step 64"),
        (1, "an action within the 64 steps up to step 64"),
    ):
        checks = trace.checks.copy()
        checks[0, column] ^= 1
        run = write_recorded_run(tmp_path / said, [(steps, replace(trace, checks=checks))], env_id="ALE/Breakout-v5")
        (mismatch,) = mismatches(open_library(run))
        assert mismatch is not None
        assert said in mismatch


def test_a_flipped_byte_of_the_actions_is_damage(breakout: Played, tmp_path: Path) -> None:
    run = write_recorded_run(tmp_path, breakout[:3], env_id="ALE/Breakout-v5")
    path = recordings_path(run)
    blocks = [found for found in iterate_blocks(path) if isinstance(found, Block)]
    content = bytearray(path.read_bytes())
    content[blocks[2].offset + 24 + len(blocks[2].payload) // 2] ^= 4
    path.write_bytes(content)
    library = open_library(run)
    assert len(library.entries) == 2
    assert len(library.damages) == 1
    assert "damaged" in library.damages[0]


def test_another_version_and_another_rom_are_said_plainly(breakout: Played, tmp_path: Path) -> None:
    setting = open_library(write_recorded_run(tmp_path, breakout[:1], env_id="ALE/Breakout-v5")).settings[0]
    assert setting.differences() == []
    assert (
        replace(setting, versions={"ale-py": "0.9"}).differences()[0].startswith("recorded with ale-py 0.9, here it is")
    )
    assert "the ROM of breakout differs" in replace(setting, rom_sha256="0" * 64).differences()[0]


def test_the_documented_script_plays_a_file_without_redline(breakout: Played, tmp_path: Path) -> None:
    run = write_recorded_run(tmp_path, breakout[:5], env_id="ALE/Breakout-v5")
    (script,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert "redline" not in script
    command = [sys.executable, "-c", script, str(recordings_path(run))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert all(line.endswith("as recorded") for line in lines)


def test_values_come_back_with_their_steps(tmp_path: Path) -> None:
    config = EnvConfig(id="redline/Catch-v0")
    played = play_at_random(config, RecordingConfig(record_values=True), episodes=2)
    library = open_library(write_recorded_run(tmp_path, played, env_id="redline/Catch-v0"))
    for entry, (_, trace) in zip(library.entries, played, strict=True):
        assert trace.values is not None
        found = library.load(entry).values
        np.testing.assert_array_equal(found, trace.values)
        assert np.isfinite(trace.values).all()


def with_setting(run: Path, **changes: object) -> Library:
    """Let the recordings say something else of how they were made."""
    path = recordings_path(run)
    written = [FILE_MAGIC]
    for block in iterate_blocks(path):
        assert isinstance(block, Block)
        payload = block.payload
        if block.kind == SETTING:
            payload = json.dumps(json.loads(payload) | changes).encode()
        written.append(encode_block(block.kind, block.steps, payload))
    path.write_bytes(b"".join(written))
    return open_library(run)


def test_actions_that_the_game_does_not_have_are_refused_before_the_emulator_waits_for_ever(
    breakout: Played, tmp_path: Path
) -> None:
    steps, trace = breakout[0]
    actions = np.where(np.arange(len(trace.actions)) == 3, 200, trace.actions)
    run = write_recorded_run(tmp_path, [(steps, replace(trace, actions=actions))], env_id="ALE/Breakout-v5")
    assert mismatches(open_library(run)) == ["action 200, of 4"]
    assert mismatches(with_setting(run, num_actions=256)) == ["256 actions were recorded, the game has 4"]


@pytest.mark.parametrize(
    "changes",
    [
        {"options": {}},
        {"options": {"continuous": True}},
        {"action_names": None},
        {"versions": []},
        {"env_id": {"a": 1}},
        {"gymnasium_id": "os:system"},
        {"game": "../../pong"},
        {"num_actions": 0},
        {"values": 3},
    ],
)
def test_a_setting_that_no_run_has_makes_its_episodes_unreadable(
    breakout: Played, changes: dict[str, object], tmp_path: Path
) -> None:
    library = with_setting(write_recorded_run(tmp_path, breakout[:1], env_id="ALE/Breakout-v5"), **changes)
    assert library.entries == []
    assert len(library.damages) == 2


def test_what_a_later_version_adds_to_a_setting_does_no_harm(breakout: Played, tmp_path: Path) -> None:
    library = with_setting(write_recorded_run(tmp_path, breakout[:1], env_id="ALE/Breakout-v5"), more="to come")
    assert mismatches(library) == [None]


def test_an_env_that_can_not_be_made_is_a_verdict_on_its_episodes(tmp_path: Path) -> None:
    played = play_at_random(EnvConfig(id="CartPole-v1"), RecordingConfig(), episodes=2)
    library = with_setting(write_recorded_run(tmp_path, played), gymnasium_id="NoSuchEnv-v0")
    assert all(mismatch is not None and "NoSuchEnv" in mismatch for mismatch in mismatches(library))


def test_whoever_stops_need_not_wait_for_the_end_of_an_episode(breakout: Played, tmp_path: Path) -> None:
    library = open_library(write_recorded_run(tmp_path, breakout, env_id="ALE/Breakout-v5"))
    with pytest.raises(StoppedWhilePlayingError, match="Ctrl-C after"):
        verify(library, library.entries, threads=1, requested_stop=lambda: "Ctrl-C")


def test_a_row_is_not_taken_for_the_recording_of_another_past(breakout: Played, tmp_path: Path) -> None:
    steps, trace = breakout[0]
    run = write_recorded_run(tmp_path, [(steps, trace)], env_id="ALE/Breakout-v5")
    assert list_episodes(run, open_library(run))[0].entry is not None
    rows = (run / "episodes.jsonl").read_text().replace(f'"length_steps":{trace.length_steps}', '"length_steps":7')
    (run / "episodes.jsonl").write_text(rows)
    assert list_episodes(run, open_library(run))[0].entry is None
