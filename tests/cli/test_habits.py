"""What people type by habit: short flags, a configuration to start from, a list of envs, facts for a bug report."""

import json
import subprocess
from pathlib import Path

import pytest

import redline
from redline.cli.flags import config_of, parse_train
from redline.cli.main import BAD_INPUT, DONE, main
from redline.cli.output import command
from redline.runtime.config import to_settings

Output = pytest.CaptureFixture[str]


def test_a_printed_command_works_as_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / ".venv" / "bin" / "redline"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [".venv/bin/redline", "train"])
    monkeypatch.setenv("PATH", "/usr/bin")
    assert command("resume", Path("my runs/pong")) == ".venv/bin/redline resume 'my runs/pong'"
    monkeypatch.setattr("sys.argv", [str(program), "train"])
    assert command("recipes") == ".venv/bin/redline recipes"
    monkeypatch.setenv("PATH", str(program.parent))  # now a shell finds it by its name
    assert command("recipes") == "redline recipes"
    monkeypatch.setattr("sys.argv", ["/somewhere/cli/main.py", "train"])
    assert command("recipes") == "redline recipes"


def test_no_message_tells_to_fetch_a_package_that_a_stranger_could_own() -> None:
    package = Path(redline.__file__).parent
    assert [path.name for path in package.rglob("*.py") if "redline[" in path.read_text(encoding="utf-8")] == []


def test_lr_and_gamma_are_short_for_the_settings_that_everybody_means() -> None:
    job = parse_train(["--algo", "ppo", "--env", "CartPole-v1", "--lr", "0.002", "--gamma=0.9"]).job
    assert (job.algorithm.optimizer.lr_at(0), job.algorithm.returns.gamma) == (0.002, 0.9)


@pytest.mark.parametrize(
    "args",
    [
        ["--recipe", "pong", "--seed", "7"],
        ["--recipe", "pong", "--max-steps", "None", "--max-minutes", "3", "--target-eval-return", "None"],
        ["--algo", "rainbow"],
        ["--algo", "a2c", "--env", "CartPole-v1", "--network", "twin", "--optimizer", "adam"],
        ["--topology", "async", "--actors", "2", "--replay.bytes", "10000000"],
    ],
)
def test_a_printed_configuration_is_the_same_job_again(args: list[str], tmp_path: Path, capsys: Output) -> None:
    assert main(["train", *args, "--print-config"]) == DONE
    file = tmp_path / "all.toml"
    file.write_text(capsys.readouterr().out)
    asked, again = parse_train(args), parse_train(["--config", str(file)])
    assert again.algo == asked.algo
    assert to_settings(again.job) == to_settings(asked.job)
    assert config_of(again) == config_of(asked)
    assert main(["train", *args, "--print-config", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["model"] == asked.algo


def test_the_configuration_of_all_algorithms_at_once_is_refused(capsys: Output) -> None:
    assert main(["train", "--model", "all", "--print-config"]) == BAD_INPUT
    assert "name one algorithm with --model" in capsys.readouterr().err


def test_the_run_json_of_a_run_is_a_configuration(tmp_path: Path, capsys: Output) -> None:
    asked = ["train", "--algo", "ppo", "--env", "CartPole-v1", "--lr", "0.002", "--max-steps", "512"]
    assert main([*asked, "--log-dir", str(tmp_path), "--json"]) == DONE
    run = Path(json.loads(capsys.readouterr().out)["run"])
    again = parse_train(["--config", str(run / "run.json"), "--seed", "5"])
    assert (again.algo, again.job.env.id, again.job.seed) == ("ppo", "CartPole-v1", 5)
    assert again.job.algorithm.optimizer.lr_at(0) == 0.002
    assert main(["train", "--config", str(tmp_path / "run.json")]) == BAD_INPUT
    assert "is not a run directory" in capsys.readouterr().err


def test_envs_lists_games_and_ids(capsys: Output) -> None:
    assert main(["envs", "--json"]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert {"pong", "breakout"} <= set(found["atari"])
    assert {"CartPole-v1", "redline/Catch-v0"} <= set(found["gymnasium"])
    assert main(["envs", "--plain"]) == DONE
    assert "ms_pacman" in capsys.readouterr().out


def test_doctor_tells_machine_and_versions(capsys: Output) -> None:
    assert main(["doctor", "--json"]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["torch"] is not None
    assert found["host"]["usable_cores"] >= 1
    assert main(["doctor", "--plain"]) == DONE
    page = capsys.readouterr().out
    assert len(page.splitlines()) == 10
    assert str(Path.home()) not in page  # a page that is published tells nobody's name


def completed(script: str, *words: str) -> list[str]:
    """Return what bash offers after these words, the last of which is being typed."""
    asked = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _redline; echo ${{COMPREPLY[@]}}"
    shell = ["bash", "--norc", "-c", f"{script}\n{asked}"]
    return subprocess.run(shell, capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_commands_flags_and_names(capsys: Output) -> None:
    assert main(["completion", "bash"]) == DONE
    script = capsys.readouterr().out
    assert completed(script, "redline", "tr") == ["train"]
    assert completed(script, "redline", "train", "--env", "pon") == ["pong"]
    assert completed(script, "redline", "train", "--model", "quant") == ["quantile-rainbow"]
    assert completed(script, "redline", "train", "--recipe", "pong-d") == ["pong-dqn"]
    assert completed(script, "redline", "train", "--optimizer.l") == ["--optimizer.lr"]
    assert "--checkpoint" in completed(script, "redline", "eval", "--ch")
    assert completed(script, "redline", "bench", "lea") == ["learner"]
    assert completed(script, "redline", "episodes", "--pol") == []  # its help only mentions a flag of play
    assert main(["completion", "zsh"]) == DONE
    assert capsys.readouterr().out.endswith(script)
    assert main(["completion", "fish"]) == BAD_INPUT
