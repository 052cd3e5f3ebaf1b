"""docs/extending.md: its files and commands work in an empty folder, and what is missing is said in one line."""

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import redline
from one_process import redline_in
from redline.cli.main import BAD_INPUT, DONE, FAILED, main
from redline.envs import catalog
from redline.errors import UserError

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", re.DOTALL)
COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All files of the page, and an environment in which packages can be installed beside Redline's own."""
    place = tmp_path_factory.mktemp("extending")
    for name, text in FILE.findall(PAGE):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    venv.create(place / "venv", symlinks=True)
    packages = next((place / "venv").glob("lib/python*/site-packages"))
    ours = [path for path in sys.path if path.endswith("site-packages")]
    # as .pth lines: editable installs among our own packages are found too
    (packages / "ours.pth").write_text("\n".join(f"import site; site.addsitedir({path!r})" for path in ours))
    for name, module in (("redline", "redline.cli.main"), ("pip", "pip")):
        script = place / "venv" / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{place}/venv/bin/python" -m {module} "$@"\n')
        script.chmod(0o755)
    return place


def environment(folder: Path) -> dict[str, str]:
    environ = {**os.environ, "PATH": f"{folder}/venv/bin{os.pathsep}{os.environ['PATH']}"}
    environ.pop("PYTHONPATH", None)
    return environ


def run(folder: Path, command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=folder,
        env=environment(folder),
    )


@pytest.mark.parametrize("section", SECTIONS)
def test_the_commands_of_a_section_do_what_it_says(folder: Path, section: str) -> None:
    (commands,) = COMMANDS.findall(SECTIONS[section])
    for command in commands.splitlines():
        done = run(folder, command)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}"


@pytest.fixture
def corridor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder of the page as the current one; modules that are imported from it are forgotten again."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(catalog, "_typed", set())
    yield
    forget_modules()


def forget_modules() -> None:
    """Be as a process that has imported nothing yet."""
    catalog._find_in_module.cache_clear()
    gymnasium.registry.pop("Corridor-v0", None)
    for name in ("corridor", "broken"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("corridor")
def test_a_module_that_was_not_typed_again_is_not_imported(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["--env", "corridor:Corridor-v0"]
    flags = ["--model", "ppo", "--max-steps", "512", "--log-dir", "asked", "--monitor.hz", "0", "--plain"]
    assert main(["train", *typed, *flags]) == DONE
    assert "--env corridor:Corridor-v0" in capsys.readouterr().out.split("continue with: ")[1]
    forget_modules()
    catalog._typed.clear()
    capsys.readouterr()
    for command in (["resume", "asked", "--max-steps", "600"], ["eval", "asked"], ["play", "asked", "--policy"]):
        assert main(command) == BAD_INPUT
        said = capsys.readouterr().err
        assert "type --env corridor:Corridor-v0" in said
        assert len(said.splitlines()) == 1
    assert main(["play", "asked", "--verify"]) == FAILED
    assert "not imported because a file says so" in capsys.readouterr().out
    assert main(["episodes", "asked", "--json"]) == DONE  # only what is played again needs the env
    assert "corridor" not in sys.modules
    assert main(["eval", "asked", "--env", "CartPole-v1"]) == BAD_INPUT
    assert "was trained on corridor:Corridor-v0, not on CartPole-v1" in capsys.readouterr().err
    assert main(["eval", "asked", *typed, "--episodes", "1", "--json"]) == DONE


def test_a_run_in_another_process_of_what_a_script_registered_says_what_is_missing(folder: Path) -> None:
    script = "import own_parts, redline; redline.train('CartPole-v1', 'ppo', network='residual', max_steps=8)"
    assert run(folder, f'python -c "{script}"').returncode == 0
    refused = run(folder, "redline resume last --max-steps 16")
    assert refused.returncode == 2
    assert "unknown network 'residual'" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        ("no_such_module:Env-v0", "module no_such_module can't be imported"),
        ("corridor:Corridr-v0", "did you mean Corridor-v0"),
        (":Env-v0", "can't be imported"),
        ("broken:Env-v0", "module broken can't be imported: ZeroDivisionError"),
    ],
)
@pytest.mark.usefixtures("corridor")
def test_a_module_that_is_of_no_use_is_refused_in_one_line(
    env_id: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    assert main(["train", "--env", env_id, "--json"]) == BAD_INPUT
    out, err = capsys.readouterr()
    assert said in json.loads(out)["error"]
    assert len(err.splitlines()) == 1


def test_an_env_of_a_module_plays_in_processes_of_their_own(folder: Path) -> None:
    flags = "--topology async --model dqn --max-steps 600 --warmup-steps 100 --log-dir async --plain"
    done = run(folder, f"redline train --env corridor:Corridor-v0 {flags}")
    assert done.returncode == 0, done.stderr


def test_an_env_of_this_process_alone_is_refused_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_registered", {})
    redline.register_env("my/Cart", lambda: gymnasium.make("CartPole-v1"))
    with pytest.raises(UserError, match="is registered in this process only"):
        redline.train("my/Cart", "dqn", topology="async")


PACKAGED = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "redline-packaged"
version = "0.1"

[project.entry-points."redline.parts"]
"network.residual" = "own_parts:RESIDUAL"

[project.entry-points."redline.algorithms"]
eleven-quantiles = "own_algorithm:ENTRY"

[project.entry-points."redline.sinks"]
printed = "own_tracker:open_printed"
broken = "no_such_module:open_it"

[tool.setuptools]
py-modules = ["own_parts", "own_algorithm", "own_tracker"]
"""


def test_a_package_brings_parts_algorithms_and_trackers_to_the_command_line(folder: Path) -> None:
    package = folder / "packaged"
    package.mkdir()
    (package / "pyproject.toml").write_text(PACKAGED)
    for name in ("own_parts.py", "own_algorithm.py", "own_tracker.py"):
        (package / name).write_text((folder / name).read_text() + "\nRESIDUAL = globals().get('Residual', int)()\n")
    assert run(folder, "pip install --quiet --no-deps --no-build-isolation ./packaged").returncode == 0
    elsewhere = folder / "elsewhere"  # where no file has the name of an installed module
    elsewhere.mkdir()

    short = ("--env", "CartPole-v1", "--max-steps", 600, "--warmup-steps", 100, "--monitor.hz", 0, "--json")
    mine = ("--model", "eleven-quantiles", "--network", "residual", "--network.width", 16, "--track", "printed")
    with redline_in(elsewhere, environ=environment(folder), python=folder / "venv/bin/python") as redline:
        done = redline("train", *mine, *short)
        assert done.code == 0, done.err
        trained = json.loads(done.out)
        returns = (elsewhere / trained["run"] / "returns.txt").read_text().splitlines()
        resumed = redline("resume", trained["run"], "--max-steps", 700, "--json")
        listed = redline("algos", "--json")
        refused = redline("train", *short, "--track", "broken")
    assert len(returns) == trained["episodes"]
    facts = json.loads((elsewhere / trained["run"] / "run.json").read_text())
    assert (facts["algorithm"], facts["config"]["network"]) == ("eleven-quantiles", {"name": "residual", "width": 16})
    assert facts["config"]["track"] == ["printed"]
    assert json.loads(resumed.out)["steps"] == 704
    assert "eleven-quantiles" in json.loads(listed.out)["algorithms"]
    assert refused.code == 2
    assert "--track broken can't be loaded from no_such_module:open_it" in refused.err


SCRIPT = """
from dataclasses import dataclass, replace

import redline
from corridor import Corridor
from own_algorithm import ENTRY
from own_parts import Residual

redline.register_env("my/Corridor", Corridor)
if __name__ == "__main__":
    settings = {"network": "residual", "warmup_steps": 100, "monitor": {"hz": 0.0}, "log_dir": "one-script"}
    run = redline.train("my/Corridor", "eleven-quantiles", callbacks=[lambda reading: True], **settings)
    stopped = run.metrics[-1]["steps"]
    assert run.events[-2]["reason"] == "the loop was left", run.events[-2]
    again = redline.Run("one-script").resume(max_steps=stopped + 800)
    assert again.metrics[-1]["steps"] >= stopped + 800
    assert again.facts["resumes"][0]["inexact"] == []
"""


def test_an_env_a_network_and_an_algorithm_of_one_script_train_stop_and_resume(folder: Path) -> None:
    (folder / "one_script.py").write_text(SCRIPT)
    done = run(folder, "python one_script.py")
    assert done.returncode == 0, done.stderr
