"""Pictures of a recorded episode are those of a fresh emulator, and an episode that goes another way is refused."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from recorded_runs import play_at_random
from short_runs import record_run, screens_of_a_bare_emulator, screens_of_a_bare_vector, write_run

from redline.envs.classic import make_gymnasium_env
from redline.envs.config import EnvConfig
from redline.episodes.episode import RecordingError
from redline.episodes.library import Entry, Library, open_library
from redline.episodes.replaying import Picture, StoppedWhilePlayingError, iterate_pictures, pictures_per_s
from redline.episodes.tracing import RecordingConfig
from redline.types import Array

STICKY = EnvConfig(id="ALE/Breakout-v5", max_episode_frames=400)
CLASSIC = EnvConfig(id="pong", max_episode_frames=400)
CATCH = EnvConfig(id="redline/Catch-v0")


def recorded(folder: Path) -> tuple[Library, list[Entry]]:
    library = open_library(folder)
    return library, library.entries


def images(library: Library, entry: Entry) -> Array:
    return np.stack([picture.image for picture in iterate_pictures(library, entry)])


def test_pictures_are_the_screens_of_a_bare_emulator_sticky_actions_included(tmp_path: Path) -> None:
    (trace,) = record_run(tmp_path, STICKY, episodes=1)
    library, (entry,) = recorded(tmp_path)
    shown = images(library, entry)
    assert shown.shape == (trace.length_steps + 1, 210, 160, 3)
    screens = screens_of_a_bare_emulator(trace, game="breakout", sticky=0.25)
    assert np.array_equal(shown[:-1], screens[:-1])
    assert np.array_equal(shown[-1], screens[-2])  # the emulator's vector env does not look again after an end


def test_episodes_that_follow_a_key_begin_where_they_began(tmp_path: Path) -> None:
    traces = record_run(tmp_path, CLASSIC, episodes=3)
    library, entries = recorded(tmp_path)
    assert [entry.address.seed_offset_steps for entry in entries] == [0, 100, 200]
    for entry, film in zip(entries, screens_of_a_bare_vector(traces, max_frames=400), strict=True):
        assert np.array_equal(images(library, entry), np.stack(film))


def test_a_picture_tells_what_led_to_it_and_what_the_agent_made_of_it(tmp_path: Path) -> None:
    traces = record_run(tmp_path, CATCH, episodes=4, values="q")
    library, entries = recorded(tmp_path)
    for trace, entry in zip(traces, entries, strict=True):
        shown = list(iterate_pictures(library, entry))
        assert [picture.step for picture in shown] == list(range(12))
        assert [picture.action for picture in shown] == [*trace.actions.tolist(), None]
        assert [picture.reward for picture in shown[:-1]] == [0.0] * 11
        assert shown[-1].reward == shown[-1].total_reward == trace.total_reward
        assert shown[-1].values is None
        assert trace.values is not None
        assert np.array_equal(
            np.stack([picture.values for picture in shown[:-1] if picture.values is not None]), trace.values
        )


def test_a_step_without_a_thought_has_no_values(tmp_path: Path) -> None:
    ((steps, trace),) = play_at_random(CATCH, RecordingConfig(record_values=True), episodes=1, num_envs=1)
    assert trace.values is not None
    values = trace.values.copy()
    values[3] = np.nan
    write_run(tmp_path, CATCH, [(steps, replace(trace, values=values))], values="q")
    library, (entry,) = recorded(tmp_path)
    shown = list(iterate_pictures(library, entry))
    assert [picture.step for picture in shown if picture.values is None] == [3, 11]


def test_pictures_of_an_env_that_draws_nothing_are_its_observations(tmp_path: Path) -> None:
    (trace, *_) = record_run(tmp_path, CATCH, episodes=1)
    library, (entry,) = recorded(tmp_path)
    env = make_gymnasium_env("redline/Catch-v0")
    seen = [env.reset(seed=trace.reset_seed)[0], *(env.step(action)[0] for action in trace.actions.tolist())]
    shown = images(library, entry)
    assert shown.shape == (12, 84, 84, 3)
    assert all(np.array_equal(shown[..., plane], np.stack(seen)) for plane in range(3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"total_reward": 5.0}, "its return is .*, recorded was 5"),
        ({"length_steps": 10, "checks": np.zeros((1, 2), np.uint32)}, "it did not end at step 10, recorded were 10"),
    ],
)
def test_an_episode_that_goes_another_way_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    ((steps, trace),) = play_at_random(CATCH, RecordingConfig(), episodes=1, num_envs=1)
    if "length_steps" in change:
        change = change | {"actions": trace.actions[:10]}
    write_run(tmp_path, CATCH, [(steps, replace(trace, **change))])  # type: ignore[arg-type]
    library, (entry,) = recorded(tmp_path)
    with pytest.raises(RecordingError, match=message):
        list(iterate_pictures(library, entry))


def test_an_episode_that_does_not_follow_another_is_refused(tmp_path: Path) -> None:
    first, second = (trace for _, trace in play_at_random(CLASSIC, RecordingConfig(), episodes=2, num_envs=1))
    short = replace(first, length_steps=90, actions=first.actions[:90])
    moved = replace(second, seed_offset_steps=90, actions_from=90)
    write_run(tmp_path, CLASSIC, [(90, short), (190, moved)])
    library, entries = recorded(tmp_path)
    with pytest.raises(RecordingError, match="the episode before it does not end where it was recorded to end"):
        list(iterate_pictures(library, entries[1]))


def test_progress_counts_the_steps_up_to_the_episode(tmp_path: Path) -> None:
    record_run(tmp_path, CLASSIC, episodes=2)
    library, entries = recorded(tmp_path)
    told: list[float] = []
    shown: list[Picture] = []
    for picture in iterate_pictures(library, entries[1], progress=told.append):
        shown.append(picture)
        if picture.step == 0:
            assert told[-1] == 0.5
    assert told == sorted(told)
    assert told[0] == 1 / 200
    assert told[-1] == 1.0
    assert len(shown) == 101


def test_a_requested_stop_ends_it_at_once(tmp_path: Path) -> None:
    record_run(tmp_path, CATCH, episodes=1)
    library, (entry,) = recorded(tmp_path)
    with pytest.raises(StoppedWhilePlayingError, match="SIGINT after 0 of 11 steps"):
        list(iterate_pictures(library, entry, requested_stop=lambda: "SIGINT"))


def test_a_second_of_play_is_a_second_of_video(tmp_path: Path) -> None:
    for name, config, expected in [
        ("pong", CLASSIC, Fraction(15)),
        ("three", EnvConfig(id="pong", skip=3, max_episode_frames=60), Fraction(20)),
        ("seven", EnvConfig(id="pong", skip=7, max_episode_frames=70), Fraction(60, 7)),
        ("catch", CATCH, Fraction(15)),
        ("cartpole", EnvConfig(id="CartPole-v1"), Fraction(50)),
    ]:
        record_run(tmp_path / name, config, episodes=1)
        library, (entry,) = recorded(tmp_path / name)
        assert pictures_per_s(library.setting_of(entry)) == expected
