"""The episodes of a run by their names: rows beside recordings, and what best, worst and last mean."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import T0, append_episode, play_at_random, write_recorded_run

from redline.envs.config import EnvConfig
from redline.episodes.episode import Trace
from redline.episodes.library import Listed, list_episodes, open_library, read_catalogue, select
from redline.episodes.tracing import RecordingConfig
from redline.errors import UserError
from redline.jsonl import RecordWriter
from redline.runs.blocks import BlockWriter

Played = list[tuple[int, Trace]]


@pytest.fixture(scope="module")
def played() -> Played:
    return play_at_random(EnvConfig(id="CartPole-v1"), RecordingConfig(), episodes=6)


def listed_in(run: Path) -> list[Listed]:
    return list_episodes(run, open_library(run))


def append_row(run: Path, **row: Any) -> None:
    with RecordWriter(run / "episodes.jsonl") as rows:
        rows.write(row)


def test_rows_are_numbered_in_order_and_found_among_the_recordings(tmp_path: Path, played: Played) -> None:
    listed = listed_in(write_recorded_run(tmp_path, played, unrecorded=(1,)))
    assert [episode.id for episode in listed] == ["1", "2", "3", "4", "5", "6"]
    assert [episode.entry is not None for episode in listed] == [True, False, True, True, True, True]
    library = open_library(tmp_path)
    for episode, (steps, trace) in zip(listed, played, strict=True):
        assert (episode.role, episode.steps, episode.total_reward) == ("actor", steps, trace.total_reward)
        assert (episode.lane, episode.reset_seed, episode.seed_offset_steps) == (trace.lane, trace.reset_seed, 0)
        assert (episode.evaluation, episode.weights_steps) == (None, None)
        if episode.entry is not None:
            assert library.load(episode.entry).actions.tolist() == trace.actions.tolist()


def test_an_evaluation_keeps_its_number_and_its_weights(tmp_path: Path, played: Played) -> None:
    run = write_recorded_run(tmp_path, played[:1])
    steps, trace = played[1]
    append_row(
        run,
        **{"role": "greedy", "steps": steps, "return": trace.total_reward, "lane": trace.lane},
        **{"seed": trace.reset_seed, "seed_offset_steps": 0, "length_steps": trace.length_steps},
        **{"evaluation": 2, "weights_steps": 1_000},
    )
    with BlockWriter(run / "recordings" / "episodes.rec") as blocks:
        append_episode(blocks, steps, trace, role="greedy", evaluation=2, weights_steps=1_000)
    found = listed_in(run)[-1]
    assert (found.id, found.role, found.evaluation, found.weights_steps) == ("2", "greedy", 2, 1_000)
    assert found.entry is not None
    assert found.entry.played.evaluation == 2


def test_episodes_of_a_policy_have_no_row_and_come_last(tmp_path: Path, played: Played) -> None:
    run = write_recorded_run(tmp_path, played[:3])
    with BlockWriter(run / "recordings" / "episodes.rec") as blocks:
        for steps, trace in played[3:5]:
            append_episode(blocks, steps, trace, role="policy")
    listed = listed_in(run)
    assert [episode.id for episode in listed] == ["1", "2", "3", "p1", "p2"]
    assert [episode.total_reward for episode in listed[3:]] == [trace.total_reward for _, trace in played[3:5]]
    assert select(listed, "p2") == listed[4]
    assert select(listed, "last") == listed[4]


def test_words_name_recorded_episodes_only(tmp_path: Path, played: Played) -> None:
    order = sorted(range(6), key=lambda place: played[place][1].total_reward)
    listed = listed_in(write_recorded_run(tmp_path, played, unrecorded=(order[0], order[-1])))
    assert select(listed, "best").total_reward == played[order[-2]][1].total_reward
    assert select(listed, "worst").total_reward == played[order[1]][1].total_reward
    recorded = [episode for episode in listed if episode.entry is not None]
    assert select(listed, "last") == recorded[-1]
    assert select(listed, recorded[0].id) == recorded[0]


def test_the_newest_of_equals_is_best_and_worst(tmp_path: Path, played: Played) -> None:
    listed = [replace(episode, total_reward=7.0) for episode in listed_in(write_recorded_run(tmp_path, played))]
    assert (select(listed, "best").id, select(listed, "worst").id) == ("6", "6")


def test_a_clock_that_goes_back_does_not_change_which_is_last(tmp_path: Path, played: Played) -> None:
    listed = listed_in(write_recorded_run(tmp_path, played))
    shuffled = [replace(episode, unix_s=T0 - place) for place, episode in enumerate(listed)]
    assert select(shuffled, "last").id == "6"


@pytest.mark.parametrize("word", ["0", "7", "p1", "Best", "", "-1", "1.0", "\x1b[31m"])
def test_an_unknown_episode_is_refused_with_a_remedy(tmp_path: Path, played: Played, word: str) -> None:
    listed = listed_in(write_recorded_run(tmp_path, played))
    with pytest.raises(UserError, match=r"use best, worst, last or an id, such as 6") as refusal:
        select(listed, word)
    assert str(refusal.value).isprintable()


def test_an_episode_without_a_recording_is_refused_with_a_remedy(tmp_path: Path, played: Played) -> None:
    listed = listed_in(write_recorded_run(tmp_path, played, unrecorded=(2,)))
    with pytest.raises(UserError, match=r"episode 3 is not recorded, 5 of 6 are: use one of them, such as 6"):
        select(listed, "3")


def test_where_nothing_is_recorded_that_is_said(tmp_path: Path, played: Played) -> None:
    with pytest.raises(UserError, match=r"no episode has ended yet: train with --record all"):
        select(listed_in(tmp_path), "best")
    run = write_recorded_run(tmp_path, played[:2], unrecorded=(0, 1))
    with pytest.raises(UserError, match=r"of 2 episodes none is recorded"):
        select(listed_in(run), "1")


HOSTILE: list[dict[str, Any]] = [
    {},
    {"return": 1.0, "length_steps": 5},
    {"return": "9", "length_steps": 5, "steps": 1},
    {"return": True, "length_steps": 5, "steps": 1},
    {"return": 10**400, "length_steps": 5, "steps": 1},
    {"return": 1.0, "length_steps": -5, "steps": 1},
    {"return": 1.0, "length_steps": 5.5, "steps": 1},
    {"return": 1.0, "length_steps": 5, "steps": 2**70},
    {"return": 1.0, "length_steps": [5], "steps": {"a": 1}},
    {"return": None, "length_steps": 5, "steps": 1},
]


def test_rows_without_what_every_episode_has_are_counted_and_left_out(tmp_path: Path, played: Played) -> None:
    run = write_recorded_run(tmp_path, played[:1])
    for row in HOSTILE:
        append_row(run, **row)
    with (run / "episodes.jsonl").open("ab") as file:
        file.write(b'{"schema":2,"return":1.0,"length_steps":5,"steps":1}\nnonsense\n[1]\n' + b"[" * 5_000 + b"\n")
        file.write(b'{"return":1.0,"length_steps":5,"steps":1,"role":"\\u001b[31mactor","lane":"x","seed":1e300}\n')
        file.write(b'{"return":1.0,"len')
    catalogue = read_catalogue(run, open_library(run))
    assert catalogue.num_unusable == len(HOSTILE) + 4
    first, strange = catalogue.listed
    # unreadable lines have no number; what stays in the file keeps its own
    assert (first.id, strange.id) == ("1", str(len(HOSTILE) + 3))
    assert (strange.lane, strange.reset_seed, strange.seed_offset_steps, strange.entry) == (-1, -1, -1, None)
    assert strange.role.isprintable()


def test_a_pipe_or_a_missing_file_has_no_episodes(tmp_path: Path) -> None:
    assert listed_in(tmp_path) == []
    os.mkfifo(tmp_path / "episodes.jsonl")
    assert listed_in(tmp_path) == []
