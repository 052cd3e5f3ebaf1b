import errno
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from redline.errors import UserError
from redline.files import explain
from redline.jsonl import read_records
from redline.runs.directory import RunDirectory, is_held, slug
from redline.runs.host import host_facts, version
from redline.runs.run_json import MAX_RUN_JSON_BYTES, read_run_json

HOLD_LOCK = """
import sys
from pathlib import Path
from redline.runs.directory import RunDirectory

run = RunDirectory.open(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pong", "pong"),
        ("ALE/Pong-v5", "ale-pong-v5"),
        ("double_dqn", "double_dqn"),
        ("../../etc/passwd", "etc-passwd"),
        ("Pokémon  Red\n", "pokemon-red"),
        ("-rf", "rf"),
        ("x" * 300, "x" * 64),
    ],
)
def test_names_become_safe_folder_names(name: str, expected: str) -> None:
    assert slug(name) == expected


@pytest.mark.parametrize("name", ["", "..", "/", "☃"])
def test_name_without_letters_or_digits_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="cannot name a folder"):
        slug(name)


def test_run_directory_has_the_documented_place_and_is_private(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "new" / "logs", game="ALE/Pong", algorithm="DQN", seed=7) as run:
        place = run.path.relative_to(tmp_path / "new" / "logs").as_posix()
        assert re.fullmatch(r"ale-pong/dqn/\d{8}-\d{6}-s7", place)
        assert stat.S_IMODE(run.path.stat().st_mode) == 0o700


def test_runs_started_in_the_same_second_get_their_own_directories(tmp_path: Path) -> None:
    runs = [RunDirectory.create(tmp_path, game="pong", algorithm="dqn", seed=7) for _ in range(6)]
    for run in runs:
        run.close()
    assert len({run.path for run in runs}) == 6
    assert any(run.path.name.endswith("-s7-2") for run in runs)


def test_log_dir_that_is_a_file_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=f"cannot create a run: {tmp_path}/file: "):
        RunDirectory.create(tmp_path / "file", game="pong", algorithm="dqn", seed=7)


def test_a_log_dir_that_cannot_be_made_leaves_no_folder_above_it(tmp_path: Path) -> None:
    changed_ns = tmp_path.stat().st_mtime_ns
    with pytest.raises(UserError, match="cannot create a run: "):
        RunDirectory.create(tmp_path / "new" / ("x" * 300), game="pong", algorithm="dqn", seed=7)
    assert (list(tmp_path.iterdir()), tmp_path.stat().st_mtime_ns) == ([], changed_ns)


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Let root, who may write everywhere, be nobody for a while."""
    user = os.geteuid()
    os.seteuid(65534 if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)


def test_log_dir_without_permission_is_a_user_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with as_ordinary_user(), pytest.raises(UserError, match=f"{tmp_path}: permission denied"):
        RunDirectory.create(tmp_path, game="pong", algorithm="dqn", seed=7)


def test_read_only_log_dir_is_a_user_error(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(UserError, match=f"{small_disk}: read-only file system"):
        RunDirectory.create(small_disk, game="pong", algorithm="dqn", seed=7)


def test_full_log_dir_is_a_user_error_naming_mount_and_space_and_leaves_no_folder(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(1 << 20))
    with pytest.raises(UserError, match=f"no space left on device; {small_disk} has 0.0 MB free: make room$"):
        RunDirectory.create(small_disk, game="pong", algorithm="dqn", seed=7)
    assert list(small_disk.glob("pong/dqn/*")) == []


def test_explanation_names_a_mount_also_for_a_path_that_is_not_there_yet(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, "No space left on device")
    assert "MB free: make room" in explain(error, tmp_path / "not" / "yet")


def test_opening_what_is_no_run_is_a_user_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match=r"is not a run directory: it holds no run\.json"):
            RunDirectory.open(path)


def test_run_json_comes_back_with_its_schema(run: RunDirectory) -> None:
    run.write_run_json({"seed": 7, "log_dir": Path("logs"), "loss": float("nan")})
    assert read_run_json(run.path) == {"schema": 1, "seed": 7, "log_dir": "logs", "loss": None}


def test_a_link_in_place_of_run_json_is_said(run: RunDirectory, tmp_path: Path) -> None:
    (run.path / "run.json").rename(tmp_path / "elsewhere")
    (run.path / "run.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="it is a link, put the file itself there"):
        read_run_json(run.path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"schema": 1', "is damaged"),
        (b"[]", "holds no JSON object"),
        (b'{"schema": 2}', "does not have schema 1"),
        (b" " * (MAX_RUN_JSON_BYTES + 1), "is larger than 16_000_000 bytes"),
    ],
    ids=["torn", "list", "schema", "size"],
)
def test_run_json_that_cannot_be_trusted_is_a_user_error(run: RunDirectory, content: bytes, message: str) -> None:
    (run.path / "run.json").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_run_json(run.path)


def test_directory_in_use_is_refused_and_the_holder_named(run: RunDirectory) -> None:
    with pytest.raises(UserError, match=f"{run.path} is in use by process {os.getpid()} since 20"):
        RunDirectory.open(run.path)
    run.close()
    RunDirectory.open(run.path).close()


def test_lock_of_a_living_process_holds_and_that_of_a_killed_one_does_not(run: RunDirectory) -> None:
    run.close()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(run.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(UserError, match=f"is in use by process {holder.pid} since 20"):
            RunDirectory.open(run.path)
        assert is_held(run.path) is True
        holder.kill()
        holder.wait()
    assert is_held(run.path) is False
    assert json.loads((run.path / "run.lock").read_bytes())["pid"] == holder.pid
    RunDirectory.open(run.path).close()


def test_lock_that_a_child_of_a_gone_process_holds_says_so(run: RunDirectory) -> None:
    lock = run.path / "run.lock"
    lock.write_text(json.dumps({**json.loads(lock.read_bytes()), "process_start_unix_s": 0}))
    with pytest.raises(UserError, match=f"by a child of process {os.getpid()}, which is gone"):
        RunDirectory.open(run.path)


def test_lock_with_unreadable_content_still_holds(run: RunDirectory) -> None:
    (run.path / "run.lock").write_bytes(b"")
    with pytest.raises(UserError, match="in use by another process that is just starting"):
        RunDirectory.open(run.path)


def test_whether_a_run_is_held_is_told_without_taking_its_lock(run: RunDirectory, tmp_path: Path) -> None:
    lock = run.path / "run.lock"
    content = lock.read_bytes()
    assert is_held(run.path) is True
    assert lock.read_bytes() == content
    lock.write_text(json.dumps({**json.loads(content), "host": "elsewhere"}))
    assert is_held(run.path) is None
    run.close()
    assert is_held(run.path) is False
    assert is_held(tmp_path / "nothing") is False


def test_cut_takes_back_what_is_counted_and_leaves_events(run: RunDirectory) -> None:
    run.events.write({"event": "checkpoint", "time_s": 1.0, "steps": 200})
    for steps in (100, 200):
        run.metrics.write({"steps": steps})
        run.episodes.write({"steps": steps})
        run.recordings.append(2, steps, b"an episode")
    assert run.cut_records(100) == {"metrics": 1, "episodes": 1, "recordings": 1}
    run.metrics.write({"steps": 150})
    assert [row["steps"] for row in read_records(run.path / "metrics.jsonl")] == [100, 150]
    assert [row["steps"] for row in read_records(run.path / "metrics.lost.jsonl")] == [200]
    assert [row["steps"] for row in read_records(run.path / "events.jsonl")] == [200]


def test_host_facts_are_json_and_name_machine_versions_and_command(run: RunDirectory) -> None:
    run.write_run_json(host_facts())
    facts = read_run_json(run.path)
    assert facts["host"]["memory_bytes"] > 0
    assert facts["host"]["usable_cores"] >= 1
    assert facts["host"]["cpu_model"]
    assert facts["versions"]["redline"] == version("redline")
    assert facts["versions"]["torch"]
    assert facts["command"]
    assert facts["commit"] is None or re.fullmatch(r"[0-9a-f]{40}(\+changes)?", facts["commit"])


def test_package_that_is_not_installed_has_no_version() -> None:
    assert version("no-such-package-anywhere") is None


def test_run_directories_need_no_heavy_import() -> None:
    code = "import sys; import redline.runs.checkpoints, redline.runs.host, redline.monitor.processes; " + (
        "sys.exit(bool({'torch', 'numpy', 'gymnasium', 'ale_py'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
