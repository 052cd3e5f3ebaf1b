"""What a user may type, and what is said when it cannot be."""

import importlib.util
import subprocess
import sys

import gymnasium
import pytest

from redline.envs.atari_games import DQN_2015, MACHADO_2018, AtariGame, atari_games
from redline.envs.catalog import env_spec, make_vector_env, resolve
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.types import EnvSpec


@pytest.mark.parametrize(
    ("env_id", "game", "protocol", "name"),
    [
        ("pong", "pong", DQN_2015, "pong"),
        ("Pong", "pong", DQN_2015, "pong"),
        ("PongNoFrameskip-v4", "pong", DQN_2015, "pong"),
        ("ALE/Pong-v5", "pong", MACHADO_2018, "pong-v5"),
        ("ms-pacman", "ms_pacman", DQN_2015, "ms_pacman"),
        ("ms_pacman", "ms_pacman", DQN_2015, "ms_pacman"),
        ("MsPacman", "ms_pacman", DQN_2015, "ms_pacman"),
        ("MsPacmanNoFrameskip-v4", "ms_pacman", DQN_2015, "ms_pacman"),
        ("ALE/MsPacman-v5", "ms_pacman", MACHADO_2018, "ms_pacman-v5"),
    ],
)
def test_every_spelling_of_a_game_is_understood(env_id, game, protocol, name):
    kind = resolve(env_id)
    assert isinstance(kind, AtariGame)
    assert (kind.game, kind.protocol, kind.name) == (game, protocol, name)


def test_canonical_id_of_every_game_is_registered_and_resolves_to_itself():
    assert len(atari_games()) > 100
    for game in atari_games():
        assert resolve(game).game == game
        v5 = f"ALE/{game.title().replace('_', '')}-v5"
        assert v5 in gymnasium.registry
        assert resolve(v5).gymnasium_id == v5


@pytest.mark.parametrize(("env_id", "name"), [("CartPole-v1", "cartpole-v1"), ("redline/Catch-v0", "redline-catch-v0")])
def test_gymnasium_and_probe_ids_stay_what_they_are(env_id, name):
    kind = resolve(env_id)
    assert (kind.gymnasium_id, kind.name, isinstance(kind, AtariGame)) == (env_id, name, False)


@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        ("pongg", "unknown env 'pongg': did you mean pong"),
        ("CartPole-v9", "did you mean CartPole-v1"),
        ("cartpole-v1", "did you mean CartPole-v1"),
        ("ALE/Ponk-v5", "did you mean ALE/Pong-v5"),
        ("Pong-v5", "ALE/Pong-v5"),
        ("redline/Cach-v0", "did you mean redline/Catch-v0"),
        ("Pong-v4", "use PongNoFrameskip-v4 or ALE/Pong-v5"),
        ("PongNoFrameskip-v0", "use PongNoFrameskip-v4 or ALE/Pong-v5"),
        ("combat", "no single-player mode"),
        ("ALE/MazeCraze-v5", "no single-player mode"),
        ("no_such_module:Env-v0", "names a module"),
        ("", "unknown env"),
    ],
)
def test_wrong_id_is_answered_in_one_line_with_a_remedy(env_id, said):
    with pytest.raises(UserError) as raised:
        resolve(env_id)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("env_id", "said"),
    [("Pendulum-v1", "continuous actions"), ("FrozenLake-v1", "Discrete observations")],
)
def test_env_we_cannot_learn_is_refused(env_id, said):
    with pytest.raises(UserError, match=said) as raised:
        make_vector_env(EnvConfig(id=env_id), num_envs=1, seed=0, threads=1)
    assert "such as CartPole-v1" in str(raised.value)


@pytest.mark.skipif(importlib.util.find_spec("mujoco") is not None, reason="mujoco is installed")
def test_missing_dependency_is_named_in_one_line():
    with pytest.raises(UserError, match=r"'Ant-v5' cannot be made: .*[Mm]u[Jj]o[Cc]o") as raised:
        env_spec(EnvConfig(id="Ant-v5"))
    assert "\n" not in str(raised.value)


def test_protocol_is_printed_in_one_sentence():
    assert str(resolve("pong").protocol) == (
        "NoFrameskip-v4 (DQN, 2015): no sticky actions, losing a life counts as terminal for learning, "
        "0–29 no-ops at the start"
    )
    assert str(resolve("ALE/Pong-v5").protocol) == (
        "ALE v5 (Machado et al., 2018): sticky actions 0.25, losing a life ends nothing, no no-ops at the start"
    )


def test_settings_that_do_not_apply_are_told():
    config, adjustments = resolve("CartPole-v1").effective(EnvConfig(id="CartPole-v1", stack=1))
    assert (config.skip, config.stack) == (1, 1)
    assert [(told.setting, told.requested, told.effective) for told in adjustments] == [
        ("env.size", "84", "native"),
        ("env.skip", "4", "1"),
    ]
    assert resolve("pong").effective(EnvConfig()) == (EnvConfig(), [])


def test_env_spec_without_an_env():
    assert env_spec(EnvConfig(id="breakout", size=64, stack=2, skip=3)) == EnvSpec(
        name="breakout", frame_shape=(64, 64), frame_dtype="uint8", stack=2, num_actions=4, frames_per_step=3
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"size": 15}, "env.size is 15: use 16 to 256"),
        ({"stack": 17}, "env.stack is 17: use 1 to 16"),
        ({"skip": 0}, "env.skip is 0: use 1 to 16"),
        ({"max_episode_frames": 3}, "env.max-episode-frames is 3: use 4 to 2_147_483_647"),
    ],
)
def test_config_out_of_range_names_the_remedy(settings, said):
    with pytest.raises(UserError, match=said.replace(".", r"\.")):
        EnvConfig(**settings)


def test_this_room_does_without_torch():
    code = "import sys, redline.envs.catalog; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0
