"""`redline episodes` as a user runs it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import append_episode, play_at_random, write_recorded_run

from redline.cli.main import BAD_INPUT, DONE, main
from redline.envs.config import EnvConfig
from redline.episodes.episode import Trace
from redline.episodes.tracing import RecordingConfig
from redline.jsonl import RecordWriter
from redline.runs.blocks import BlockWriter

Output = pytest.CaptureFixture[str]
Played = list[tuple[int, Trace]]


@pytest.fixture(scope="module")
def played() -> Played:
    return play_at_random(EnvConfig(id="CartPole-v1"), RecordingConfig(), episodes=30)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, played: Played) -> Path:
    """Thirty episodes of training of which the fourth is not recorded, one of an evaluation and one of a policy."""
    folder = write_recorded_run(tmp_path_factory.mktemp("runs") / "run", played[:28], unrecorded=(3,))
    (folder / "run.json").write_text('{"schema": 1}')
    with BlockWriter(folder / "recordings" / "episodes.rec") as blocks:
        steps, trace = played[28]
        append_episode(blocks, steps, trace, role="greedy", evaluation=1, weights_steps=40)
        steps, trace = played[29]
        append_episode(blocks, steps, trace, role="policy")
    with RecordWriter(folder / "episodes.jsonl") as rows:
        steps, trace = played[28]
        rows.write(
            {
                "role": "greedy",
                "steps": steps,
                "return": trace.total_reward,
                "length_steps": trace.length_steps,
                "lane": trace.lane,
                "seed": trace.reset_seed,
                "seed_offset_steps": trace.seed_offset_steps,
                "evaluation": 1,
                "weights_steps": 40,
            }
        )
    return folder


def listed(capsys: Output, run: Path, *args: object) -> dict[str, Any]:
    """List and return the one object that is printed."""
    capsys.readouterr()
    assert main(["episodes", str(run), *map(str, args), "--json"]) == DONE
    out, err = capsys.readouterr()
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    return found


def ids(found: dict[str, Any]) -> list[str]:
    return [episode["id"] for episode in found["episodes"]]


def test_json_tells_everything_of_every_episode(run: Path, played: Played, capsys: Output) -> None:
    found = listed(capsys, run, "--sort", "id")
    assert (found["schema"], found["run"]) == (1, str(run))
    assert (found["num_episodes"], found["num_recorded"], found["num_matching"], found["shown"]) == (30, 29, 30, 30)
    assert found["recordings_bytes"] == (run / "recordings" / "episodes.rec").stat().st_size
    assert (found["unusable_rows"], found["damages"], found["torn_tail"]) == (0, [], None)
    assert ids(found) == [*map(str, range(1, 30)), "p1"]
    for episode, (steps, trace) in zip(found["episodes"], played, strict=True):
        assert (episode["steps"], episode["return"], episode["length_steps"]) == (
            steps,
            trace.total_reward,
            trace.length_steps,
        )
        assert (episode["lane"], episode["key_seed"], episode["key_offset_steps"]) == (trace.lane, trace.reset_seed, 0)
    assert [episode["id"] for episode in found["episodes"] if not episode["recorded"]] == ["4"]
    assert found["episodes"][28]["evaluation"] == 1
    assert [episode["role"] for episode in found["episodes"][27:]] == ["actor", "greedy", "policy"]


@pytest.mark.parametrize("key", ["steps", "return", "length"])
def test_episodes_are_sorted_the_largest_last_or_first(run: Path, key: str, capsys: Output) -> None:
    field = "length_steps" if key == "length" else key
    values = [episode[field] for episode in listed(capsys, run, "--sort", key)["episodes"]]
    assert values == sorted(values)
    backwards = [episode[field] for episode in listed(capsys, run, "--sort", key, "--reverse")["episodes"]]
    assert backwards == sorted(values, reverse=True)
    for flags in ([], ["--reverse"]):
        few = [episode[field] for episode in listed(capsys, run, "--sort", key, "--limit", 5, *flags)["episodes"]]
        assert sorted(few) == values[-5:]


def test_filters_leave_out_what_does_not_match(run: Path, capsys: Output) -> None:
    everything = listed(capsys, run)["episodes"]

    def left(*args: object) -> list[str]:
        return sorted(ids(listed(capsys, run, *args)))

    def expected(wanted: Any) -> list[str]:
        return sorted(episode["id"] for episode in everything if wanted(episode))

    assert left("--role", "greedy") == ["29"]
    assert left("--role", "policy") == ["p1"]
    assert len(left("--role", "actor")) == 28
    assert left("--recorded") == expected(lambda episode: episode["recorded"])
    assert left("--min-return", 15, "--max-return", 25.5) == expected(lambda e: 15 <= e["return"] <= 25.5)
    assert left("--min-length", 15, "--max-length", 25) == expected(lambda e: 15 <= e["length_steps"] <= 25)
    assert left("--from-step", 200, "--to-step", 400) == expected(lambda e: 200 <= e["steps"] <= 400)
    assert left("--min-return", -5) == expected(lambda e: True)
    nothing = listed(capsys, run, "--min-return", 1e6)
    assert (nothing["num_episodes"], nothing["num_matching"], nothing["shown"], nothing["episodes"]) == (30, 0, 0, [])


def test_a_terminal_gets_the_newest_and_is_told_so(run: Path, played: Played, capsys: Output) -> None:
    assert main(["episodes", str(run), "--plain"]) == DONE
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert lines[0].split() == ["id", "role", "step", "return", "length", "lane", "key", "seed", "recorded"]
    assert [line.split()[0] for line in lines[1:-1]] == [*map(str, range(11, 30)), "p1"]
    assert lines[-1].startswith("the newest 20 of 30 episodes (--limit 0 lists all); 29 recorded in ")
    steps, trace = played[27]
    row = next(line.split() for line in lines if line.split()[0] == "28")
    assert row == [
        *("28", "actor", f"{steps:,}", f"{trace.total_reward:g}", str(trace.length_steps)),
        *(str(trace.lane), str(trace.reset_seed), "yes"),
    ]
    assert main(["episodes", str(run), "--plain", "--limit", "0"]) == DONE
    assert len(capsys.readouterr().out.splitlines()) == 32
    assert main(["episodes", str(run), "--plain", "--role", "greedy"]) == DONE
    assert "1 episode, 30 without the filter; " in capsys.readouterr().out
    assert main(["episodes", str(run), "--sort", "return", "--limit", "3"]) == DONE
    assert "the best 3 of 30 episodes" in capsys.readouterr().out


def test_a_run_that_has_just_begun_has_no_episodes(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "run.json").write_text('{"schema": 1}')
    assert main(["episodes", str(tmp_path)]) == DONE
    assert capsys.readouterr().out == "no episode has ended yet\n"
    assert listed(capsys, tmp_path)["episodes"] == []


def test_an_older_run_without_recordings_is_listed(tmp_path: Path, played: Played, capsys: Output) -> None:
    folder = write_recorded_run(tmp_path / "run", played[:3])
    (folder / "recordings" / "episodes.rec").unlink()
    (folder / "recordings").rmdir()
    assert main(["episodes", str(folder)]) == DONE
    assert capsys.readouterr().out.splitlines()[-1] == "3 episodes; none is recorded"


def test_hostile_rows_are_left_out_or_shown_harmlessly(tmp_path: Path, played: Played, capsys: Output) -> None:
    folder = write_recorded_run(tmp_path / "run", played[:2])
    lines = [
        b"\xff\xfe\n",
        b'{"schema":1}\n',
        b'{"return":1e400,"length_steps":5,"steps":1}\n',
        b'{"return":1' + b"0" * 300 + b',"length_steps":5,"steps":1}\n',
        b'{"return":NaN,"length_steps":5,"steps":1}\n',
        b'{"return":1e38,"length_steps":9e18,"steps":9e18,"role":"\\u001b[2J\\n\\u202eactor","lane":[],"seed":-1}\n',
        b'{"return":-1e-9,"length_steps":0,"steps":0,"role":{"a":1},"unix_s":"x","evaluation":1.5}\n',
        b"[" * 100_000 + b"\n",
        b'{"return":1.0,"length_steps":5,"ste',
    ]
    with (folder / "episodes.jsonl").open("ab") as file:
        file.write(b"".join(lines))
    assert main(["episodes", str(folder), "--plain"]) == DONE
    out, err = capsys.readouterr()
    assert err == "redline: warning: 6 lines of episodes.jsonl are not episodes and are left out\n"
    assert all(letter.isprintable() or letter == "\n" for letter in out)
    assert "4 episodes; 2 recorded in " in out
    assert main(["episodes", str(folder), "--json"]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["shown"], found["unusable_rows"]) == (4, 6)
    strange = next(episode for episode in found["episodes"] if episode["return"] == 1e38)
    assert (strange["lane"], strange["key_seed"], strange["recorded"]) == (None, None, False)


def test_damaged_recordings_are_told_of(tmp_path: Path, played: Played, capsys: Output) -> None:
    folder = write_recorded_run(tmp_path / "run", played[:4])
    path = folder / "recordings" / "episodes.rec"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content[:-5])
    assert main(["episodes", str(folder), "--plain"]) == DONE
    out, err = capsys.readouterr()
    assert "are damaged" in err
    assert "cut by a crash; skipped" in err
    assert all(line.startswith("redline: warning: ") for line in err.splitlines())
    assert "2 recorded in " in out
    assert out.count(" no\n") == 2


def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path: Path, played: Played, capsys: Output) -> None:
    folder = write_recorded_run(tmp_path / "run", played[:2])
    (folder / "recordings" / "episodes.rec").write_bytes(b"PK\x03\x04 a zip, perhaps")
    assert main(["episodes", str(folder)]) == BAD_INPUT
    err = capsys.readouterr().err
    assert "is not a file of recordings" in err
    assert err.count("\n") == 1
    (folder / "recordings" / "episodes.rec").unlink()
    os.mkfifo(folder / "recordings" / "episodes.rec")
    assert main(["episodes", str(folder)]) == BAD_INPUT
    assert "the recordings can't be read: " in capsys.readouterr().err


BAD = [
    ([], "episodes needs a run directory, a folder of runs (its newest) or last: redline episodes last"),
    (["--plain"], "episodes needs a run directory"),
    (["/nowhere"], "/nowhere does not exist: name a run directory"),
    (["/dev/null"], "/dev/null is a file: name a run directory"),
    (["RUN", "--sort", "reward"], "--sort is 'reward': use steps or return or length or id"),
    (["RUN", "--role", "actr"], "unknown role 'actr': did you mean actor"),
    (["RUN", "--role", "x"], "unknown role 'x': known: actor, greedy, policy"),
    (["RUN", "--min-return", "5", "--max-return", "-5"], "--min-return 5 is above --max-return -5"),
    (["RUN", "--min-length", "9", "--max-length", "8"], "--min-length 9 is above --max-length 8"),
    (["RUN", "--from-step", "9", "--to-step", "8"], "--from-step 9 is above --to-step 8"),
    (["RUN", "--min-return", "nan"], "--min-return is nan: use a number"),
    (["RUN", "--min-length", "x"], "--min-length"),
    (["RUN", "--limit", "-1"], "limit is -1: use 1 or more, or 0 for all"),
    (["RUN", "--rol", "actor"], "did you mean --role"),
    (["RUN", "more"], "more"),
]


@pytest.mark.parametrize(("args", "message"), BAD, ids=[" ".join(args) for args, _ in BAD])
def test_bad_input_is_one_line_with_a_remedy(args: list[str], message: str, run: Path, refused: Any) -> None:
    refused(["episodes", *(str(run) if arg == "RUN" else arg for arg in args)], message)


def test_a_folder_that_is_no_run_is_refused(run: Path, tmp_path: Path, capsys: Output) -> None:
    assert main(["episodes", str(tmp_path)]) == BAD_INPUT
    assert "is not a run directory: it holds neither run.json nor episodes.jsonl" in capsys.readouterr().err


def test_a_folder_of_runs_means_its_newest(run: Path, capsys: Output) -> None:
    assert main(["episodes", str(run.parent), "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["run"] == str(run)


def test_help_shows_the_flags(capsys: Output) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["episodes", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for flag in ("--sort", "--reverse", "--role", "--min-return", "--to-step", "--recorded", "--limit", "--json"):
        assert flag in text
