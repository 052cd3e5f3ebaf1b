"""`redline dashboard`: what it refuses before it listens, and the token that it keeps."""

import signal
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from redline.cli.dashboard import read_token
from redline.cli.main import BAD_INPUT, main
from redline.errors import UserError

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nowhere"], "nowhere does not exist: name a run directory"),
        (["file"], "file is a file"),
        ([".", "--port", "99999"], "port"),
        ([".", "--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        ([".", "--token-file", "nowhere/token"], "use another --token-file"),
        ([".", "--prot", "1"], "did you mean --port?"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    args: list[str], said: str, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(["dashboard", *args]) == BAD_INPUT
    [line] = capsys.readouterr().err.splitlines()[-1:]
    assert said in line


def test_without_runs_it_says_how_to_begin(elsewhere: None, capsys: Output) -> None:
    assert main(["dashboard"]) == BAD_INPUT
    assert "redline train starts a run" in capsys.readouterr().err


def test_without_its_extra_it_names_the_command_that_installs_it(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redline.cli.dashboard.find_spec", lambda name: None)
    assert main(["dashboard", str(tmp_path)]) == BAD_INPUT
    assert "make setup EXTRAS=dashboard" in capsys.readouterr().err


def test_a_token_is_made_once_and_kept_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = read_token(path)
    assert token is not None
    assert len(token) >= 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_token(path) == token
    assert read_token(None) is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_token_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text("x" * 40)
    path.chmod(mode)
    with pytest.raises(UserError, match="chmod 600"):
        read_token(path)


def test_a_token_is_no_link_and_not_short(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("x" * 19)
    path.chmod(0o600)
    with pytest.raises(UserError, match="no token of 20 characters"):
        read_token(path)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(UserError, match="use another --token-file"):
        read_token(tmp_path / "link")


def test_it_listens_beyond_this_machine_with_a_token_alone(
    tmp_path: Path, main_beside: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    token = read_token(tmp_path / "token") or b""

    told: list[str] = []

    def look(send: Callable[[signal.Signals], None]) -> None:
        while "Ctrl-C" not in "".join(told):
            told.extend(capfd.readouterr())
        port = "".join(told).split("once=")[0].rsplit(":", 1)[1].split("/")[0]
        address = f"http://127.0.0.1:{port}/api/runs"
        with pytest.raises(OSError, match="401"):
            urlopen(address, timeout=20)
        with urlopen(Request(address, headers={"Authorization": f"Bearer {token.decode()}"}), timeout=20) as answer:
            assert answer.status == 200
        send(signal.SIGINT)

    args = ["dashboard", tmp_path / "runs", "--host", "0.0.0.0", "--port", "0", "--token-file", tmp_path / "token"]  # noqa: S104
    assert main_beside(look, args) == 0
    said = "".join(told)
    assert "no TLS" in said
    assert "good once, for 10 minutes" in said
    assert token.decode() not in said
