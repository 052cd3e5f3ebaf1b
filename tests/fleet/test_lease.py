"""One holder at a time: races, kills, reused numbers, clocks, sleeping machines, full disks, foreign files."""

import json
import os
import signal
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from quick_fleets import Zygote, fill, kill
from quick_runner import FENCE_S, TIMEOUT_S

from redline.errors import UserError
from redline.fleet import lease as leases
from redline.fleet.lease import (
    BLOCK_BYTES,
    Holder,
    Lease,
    LeaseHeldError,
    Watcher,
    ask_to_stop,
    encode,
    read_holder,
)
from redline.fleet.place import Place, here, start_ticks
from waiting import wait_for

ELSEWHERE = Place("elsewhere", "another boot", "pid:[1]")


def hold(zygote: Zygote, folder: Path, **more: object) -> int:
    """Let another process take the lease of `slot`, and wait until it has it."""
    pid = zygote.ask(take=str(folder), slot="slot", **more)
    wait_for(lambda: (holder := read_holder(folder, "slot")) is not None and holder.pid == pid, "the lease is taken")
    return pid


def wait_until_gone(pid: int) -> None:
    wait_for(lambda: start_ticks(pid) is None, f"process {pid} is gone")


def put(folder: Path, holder: Holder) -> Path:
    """Write a lease as its holder would."""
    path = folder / "leases" / holder.slot / f"{holder.epoch:06d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(holder))
    return path


def test_of_many_that_want_a_lease_at_once_one_gets_it(tmp_path: Path, zygote: Zygote) -> None:
    for number in range(8):
        at_s = time.monotonic() + 0.05
        (folder := tmp_path / str(number)).mkdir()
        pids = [zygote.ask(take=str(folder), slot="slot", at_s=at_s, hold_s=60.0) for _ in range(6)]
        wait_for((folder / "leases" / "slot" / "000001.json").exists, "somebody has it")
        wait_for(lambda: sum(start_ticks(pid) is not None for pid in pids) == 1, "the others are refused")  # noqa: B023
        holder = read_holder(folder, "slot")
        assert holder is not None
        assert start_ticks(holder.pid) == holder.process_start_ticks
        assert [path.name for path in (folder / "leases" / "slot").iterdir()] == ["000001.json"]
        kill(holder.pid)


def test_a_lease_that_comes_up_while_another_process_looks_for_one_is_not_taken_over(
    tmp_path: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []

    def look_slowly(folder: Path, slot: str) -> Holder | None:
        found = read_holder(folder, slot)
        pids.append(hold(zygote, tmp_path))
        return found

    monkeypatch.setattr("redline.fleet.lease.read_holder", look_slowly)
    with pytest.raises(LeaseHeldError, match="quicker"):
        Lease.take(tmp_path, "slot", watcher=Watcher(tmp_path))
    assert [path.name for path in (tmp_path / "leases" / "slot").iterdir()] == ["000001.json"]
    kill(pids[0])


def test_a_lease_is_refused_while_its_process_lives_and_free_as_soon_as_it_is_gone(
    tmp_path: Path, zygote: Zygote
) -> None:
    pid = hold(zygote, tmp_path)
    with pytest.raises(LeaseHeldError, match=f"^slot is trained by process {pid} on "):
        Lease.take(tmp_path, "slot", watcher=Watcher(tmp_path))
    kill(pid)
    with Lease.take(tmp_path, "slot", watcher=Watcher(tmp_path)) as lease:
        assert lease.holder.epoch == 2
    assert read_holder(tmp_path, "slot") == msgspec.structs.replace(lease.holder, state="ended")


def test_a_process_that_has_the_number_of_a_dead_one_is_another(tmp_path: Path) -> None:
    holder = Holder("slot", 1, here(), os.getpid(), psutil.Process().create_time(), start_ticks(os.getpid()) or 0)
    assert Watcher(tmp_path).is_alive(holder)
    ticks = holder.process_start_ticks
    assert not Watcher(tmp_path).is_alive(msgspec.structs.replace(holder, process_start_ticks=ticks - 1))


def test_a_clock_that_is_set_changes_nothing(tmp_path: Path) -> None:
    for difference_s in (-1e6, 1e6):
        at_s = psutil.Process().create_time() + difference_s
        holder = Holder("slot", 1, here(), os.getpid(), at_s, start_ticks(os.getpid()) or 0, began_unix_s=at_s)
        assert Watcher(tmp_path).is_alive(holder)


def test_a_renamed_machine_is_the_same_machine(tmp_path: Path) -> None:
    place = msgspec.structs.replace(here(), host="before")
    holder = Holder("slot", 1, place, os.getpid(), 0.0, start_ticks(os.getpid()) or 0)
    assert Watcher(tmp_path).is_alive(holder)
    assert not Watcher(tmp_path).is_alive(msgspec.structs.replace(holder, process_start_ticks=1))


def test_a_machine_that_was_started_again_frees_the_leases_on_its_own_disk_at_once(tmp_path: Path) -> None:
    before = Place(here().host, "the boot before", here().pid_namespace)
    holder = Holder("slot", 7, before, os.getpid(), 0.0, start_ticks(os.getpid()) or 0)
    assert not Watcher(tmp_path).is_alive(holder)


def test_a_holder_on_another_machine_lives_as_long_as_it_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "is_shared", lambda _: True)
    now_s = 0.0
    watcher = Watcher(tmp_path, clock=lambda: now_s)
    holder = Holder("slot", 1, ELSEWHERE, 4, 0.0)
    for beat in range(3):
        assert watcher.is_alive(msgspec.structs.replace(holder, beat=beat))
        now_s += leases.TIMEOUT_S - 0.1
    assert watcher.is_alive(msgspec.structs.replace(holder, beat=2)) is True
    now_s += 0.2
    assert watcher.is_alive(msgspec.structs.replace(holder, beat=2)) is False
    assert watcher.is_alive(msgspec.structs.replace(holder, epoch=2, beat=2)) is True
    assert watcher.is_alive(msgspec.structs.replace(holder, epoch=2, beat=3, state="ended")) is False


def test_a_holder_that_can_not_beat_ends_before_anybody_may_take_over(tmp_path: Path, zygote: Zygote) -> None:
    begun_s = time.monotonic()
    pid = hold(zygote, tmp_path, shared=True, deaf=True)
    wait_until_gone(pid)
    assert time.monotonic() - begun_s < TIMEOUT_S
    assert leases.FENCE_S + 5.0 < leases.TIMEOUT_S  # the same with the real numbers, and 5 s for its children


def test_a_sleeper_that_others_could_have_replaced_ends_when_it_wakes(tmp_path: Path, zygote: Zygote) -> None:
    pid = hold(zygote, tmp_path, shared=True)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(FENCE_S + 0.2)
    assert start_ticks(pid) is not None
    os.kill(pid, signal.SIGCONT)
    wait_until_gone(pid)
    holder = read_holder(tmp_path, "slot")
    assert holder is not None
    assert holder.state == "running"  # it wrote nothing after it woke


def test_a_sleeper_on_a_disk_of_its_own_goes_on(tmp_path: Path, zygote: Zygote) -> None:
    pid = hold(zygote, tmp_path)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(FENCE_S + 0.2)
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.2)
    assert start_ticks(pid) is not None
    kill(pid)


def test_a_holder_that_finds_another_one_ends_at_once(tmp_path: Path, zygote: Zygote) -> None:
    pid = hold(zygote, tmp_path)
    put(tmp_path, Holder("slot", 2, ELSEWHERE, 4, 0.0))
    wait_until_gone(pid)


def test_who_slept_between_looking_and_taking_does_not_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def create_late(path: Path, content: list[bytes]) -> None:
        put(tmp_path, Holder("slot", 5, ELSEWHERE, 4, 0.0))
        path.write_bytes(content[0])

    monkeypatch.setattr(leases, "create_file", create_late)
    with pytest.raises(LeaseHeldError, match=r"was quicker: 000005\.json"):
        Lease.take(tmp_path, "slot", watcher=Watcher(tmp_path))
    assert [path.name for path in (tmp_path / "leases" / "slot").iterdir()] == ["000005.json"]


def test_a_full_disk_stops_no_beat_and_no_end(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "BEAT_S", 0.01)
    monkeypatch.setattr(leases, "LOOK_S", 0.01)
    lease = Lease.take(small_disk, "slot", watcher=Watcher(small_disk))
    lease.beat_with(dict)
    fill(small_disk)
    before = lease.holder.beat
    wait_for(lambda: (found := read_holder(small_disk, "slot")) is not None and found.beat > before + 3, "it beats")
    lease.end(exit_code=0, reason="done")
    found = read_holder(small_disk, "slot")
    assert found is not None
    assert (found.state, found.exit_code, found.reason) == ("ended", 0, "done")


def test_a_request_to_stop_reaches_a_run_on_a_full_disk(small_disk: Path, zygote: Zygote) -> None:
    pid = hold(zygote, small_disk)
    fill(small_disk)
    holder = read_holder(small_disk, "slot")
    assert holder is not None
    ask_to_stop(small_disk, holder)
    wait_until_gone(pid)


def test_a_lease_is_a_block_of_fixed_size_whatever_it_says(tmp_path: Path) -> None:
    holder = Holder("slot", 1, here(), 1, 0.0, reason="\x1b" + "é" * 10_000, run="runs/" + "a" * 300)
    assert len(encode(holder)) == BLOCK_BYTES
    put(tmp_path, holder)
    found = read_holder(tmp_path, "slot")
    assert found is not None
    assert (found.run, found.reason.isprintable()) == (holder.run, True)


def test_a_block_that_is_half_written_is_no_lease_of_the_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, Holder("slot", 1, here(), 1, 0.0, state="ended", attempt=3))
    path = put(tmp_path, Holder("slot", 2, ELSEWHERE, 4, 0.0, beat=10, attempt=4))
    torn = encode(Holder("slot", 2, ELSEWHERE, 4, 0.0, beat=9_999, attempt=4))[:100]
    path.write_bytes(torn + path.read_bytes()[100:])
    found = read_holder(tmp_path, "slot")
    assert found is not None
    assert (found.epoch, found.state, found.attempt) == (2, "running", 3)
    assert not Watcher(tmp_path).is_alive(found)  # nobody else writes to this disk: the machine was started again
    monkeypatch.setattr(leases, "is_shared", lambda _: True)
    assert Watcher(tmp_path).is_alive(found)


def test_foreign_files_neither_block_nor_lead_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / "leases" / "slot"
    home.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    os.mkfifo(home / "000009.json")
    (home / "000008.json").symlink_to(secret)
    (home / "99999999999999999999.json").write_text("{}")
    (home / "٣.json").write_text("{}")
    (home / "000007.json").write_text("[" * 100_000)
    (home / "000006.json").write_text(json.dumps({"schema": 1, "lease": {"epoch": 10**400}}))
    os.mkfifo(home / "stop")
    with Lease.take(tmp_path, "slot", watcher=Watcher(tmp_path)) as lease:
        assert lease.holder.epoch == 10
        lease.beat_with(dict)
        time.sleep(0.4)
    assert secret.read_text() == "secret"
    found = read_holder(tmp_path, "slot")
    assert found is not None
    assert (found.epoch, found.state) == (10, "ended")


@pytest.mark.parametrize("run", ["/etc", "../elsewhere", "runs/../../elsewhere"])
def test_a_lease_names_no_run_outside_its_fleet(tmp_path: Path, run: str) -> None:
    with pytest.raises(ValueError, match="not in its fleet"):
        Holder("slot", 1, here(), 1, 0.0, run=run)
    path = put(tmp_path, Holder("slot", 1, here(), 1, 0.0, run="x" * len(run)))
    path.write_bytes(path.read_bytes().replace(b"x" * len(run), run.encode()))
    found = read_holder(tmp_path, "slot")
    assert found is not None
    assert found.run == ""


def test_a_file_in_place_of_the_leases_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "leases").write_text("")
    with pytest.raises(UserError, match=r"leases is a file, not a folder of Redline: move it away"):
        Lease.take(tmp_path, "slot", watcher=Watcher(tmp_path))


@pytest.mark.parametrize("name", ["leases", "leases/slot"])
def test_no_lease_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = tmp_path / "fleet"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(UserError, match="is a link, not a folder of Redline"):
        Lease.take(folder, "slot", watcher=Watcher(folder))
    assert list(elsewhere.iterdir()) == []
