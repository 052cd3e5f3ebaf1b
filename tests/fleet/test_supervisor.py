"""What becomes of the runs of a fleet: ends of all kinds, stops, kills, changes, reboots, shortages."""

import os
import signal
import threading
from pathlib import Path

import msgspec
import pytest
from quick_fleets import (
    Listening,
    QuickEngine,
    Zygote,
    begun,
    fill,
    kill,
    make_fleet,
    statuses_of,
    train,
    wait_until_running,
)

from redline.fleet import hung, supervisor
from redline.fleet.lease import LeaseHeldError, encode, read_holder
from redline.fleet.listing import change_listing, changed, new_listing, read_listing, undone, write_listing
from redline.fleet.place import Place
from redline.fleet.slot_log import SlotLog
from redline.fleet.slots import SLOTS_JSONL
from redline.fleet.supervisor import SUPERVISOR
from redline.jsonl import read_records
from waiting import wait_for

pytestmark = pytest.mark.usefixtures("quick")

ENDS = {
    "done": (["done"], "done", 1, "max-steps reached"),
    "killed": (["die", "done"], "done", 2, "max-steps reached"),
    "preempted": (["preempted", "done"], "done", 2, "max-steps reached"),
    "failing": (["fail"], "given up", 3, "3 attempts without a new step, the last: it is fail"),
    "progressing": (["fail late"] * 4 + ["done"], "done", 5, "max-steps reached"),
    "refused": (["bad", "done"], "given up", 1, "it is bad"),
}


def test_every_attempt_has_the_consequence_that_is_promised(tmp_path: Path, zygote: Zygote) -> None:
    listing = make_fleet(tmp_path, {name: plan for name, (plan, *_) in ENDS.items()})
    summary, _ = train(tmp_path, zygote)
    found = statuses_of(tmp_path, listing)
    told = {name: (found[name].state, found[name].attempt, found[name].reason) for name in ENDS}
    assert told == {name: (state, attempt, reason) for name, (_, state, attempt, reason) in ENDS.items()}
    assert summary.counts == {"waiting": 0, "running": 0, "done": 4, "stopped": 0, "given up": 2}
    assert len(begun(tmp_path)) == sum(attempt for _, _, attempt, _ in ENDS.values())


def test_a_fleet_that_is_over_starts_nothing_again_unless_given_up_runs_are_tried_again(
    tmp_path: Path, zygote: Zygote
) -> None:
    listing = make_fleet(tmp_path, {"good": ["done"], "bad": ["bad", "done"]})
    train(tmp_path, zygote)
    train(tmp_path, zygote)
    assert len(begun(tmp_path)) == 2
    train(tmp_path, zygote, retry=True)
    assert [row["slot"] for row in begun(tmp_path)][2:] == ["bad-ppo-s1"]
    assert statuses_of(tmp_path, listing)["bad"].state == "done"


def test_rows_name_slot_state_attempt_run_host_boot_process_and_reason(tmp_path: Path, zygote: Zygote) -> None:
    make_fleet(tmp_path, {"good": ["done"]})
    train(tmp_path, zygote)
    rows = [row for row in read_records(tmp_path / SLOTS_JSONL) if row.get("slot") == "good-ppo-s1"]
    last, holder = rows[-1], read_holder(tmp_path, "good-ppo-s1")
    assert holder is not None
    assert list(dict.fromkeys(row["state"] for row in rows)) == ["waiting", "running", "done"]
    assert (last["attempt"], last["steps"], last["exit_code"], last["reason"]) == (1, 30, 0, "max-steps reached")
    assert (last["host"], last["boot_id"], last["pid"]) == (holder.place.host, holder.place.boot_id, holder.pid)
    assert (tmp_path / last["run"] / "checkpoints" / "30").is_dir()


def test_at_most_as_many_run_side_by_side_as_there_is_room_for(tmp_path: Path, zygote: Zygote) -> None:
    make_fleet(tmp_path, {name: ["done"] for name in "abcd"}, concurrency=2)
    train(tmp_path, zygote)
    running, most = set(), 0
    for row in read_records(tmp_path / SLOTS_JSONL):
        if "slot" in row:
            (running.add if row["state"] == "running" else running.discard)(row["slot"])
            most = max(most, len(running))
    assert most == 2


def test_a_stop_saves_all_runs_and_a_resume_goes_on_from_there(tmp_path: Path, zygote: Zygote) -> None:
    listing = make_fleet(tmp_path, {"long": ["endless", "done"], "last": ["done"]}, concurrency=1)
    stopped: list[str] = []

    def stop() -> str | None:
        metrics = list(tmp_path.glob("runs/long-ppo-s1/*/*/*/metrics.jsonl"))
        if metrics and len(metrics[0].read_bytes().splitlines()) > 3:
            stopped.append("SIGINT")
        return "SIGINT" if stopped else None

    summary, _ = train(tmp_path, zygote, stop=stop)
    assert summary.stopped == "SIGINT"
    first = statuses_of(tmp_path, listing)
    assert (first["long"].state, first["long"].reason) == ("stopped", "asked to stop")
    assert (first["last"].state, first["last"].attempt) == ("waiting", 0)
    train(tmp_path, zygote)
    assert {status.state for status in statuses_of(tmp_path, listing).values()} == {"done"}
    first_begin, second_begin, _ = begun(tmp_path)
    assert (first_begin["steps"], second_begin["steps"]) == (0, first["long"].steps)


def test_a_killed_supervisor_costs_nothing_but_time(tmp_path: Path, zygote: Zygote) -> None:
    listing = make_fleet(tmp_path, {"long": ["endless", "done"], "short": ["done"]})
    pid = zygote.ask(supervise=str(tmp_path))
    runner = wait_until_running(tmp_path, "long-ppo-s1", steps=5)
    kill(pid)
    before = statuses_of(tmp_path, listing)["long"]
    assert (before.state, before.attempt, before.holder and before.holder.pid) == ("running", 1, runner)
    again = zygote.ask(supervise=str(tmp_path))
    wait_for(lambda: statuses_of(tmp_path, listing)["short"].state == "done", "the other run is done")
    assert statuses_of(tmp_path, listing)["long"].attempt == 1  # it went on without anybody
    kill(runner)
    wait_for(lambda: statuses_of(tmp_path, listing)["long"].state == "done", "the killed run is done")
    assert [row["slot"] for row in begun(tmp_path)].count("long-ppo-s1") == 2
    wait_for(lambda: not Path(f"/proc/{again}").exists(), "the supervisor ends")


def test_a_second_supervisor_is_refused(tmp_path: Path, zygote: Zygote) -> None:
    make_fleet(tmp_path, {"long": ["endless"]})
    pid = zygote.ask(supervise=str(tmp_path))
    runner = wait_until_running(tmp_path, "long-ppo-s1")
    with pytest.raises(LeaseHeldError, match=f"supervisor is trained by process {pid} on "):
        train(tmp_path, zygote)
    kill(pid)
    kill(runner)


def test_a_change_and_its_undoing_lose_no_run(tmp_path: Path, zygote: Zygote) -> None:
    make_fleet(tmp_path, {"changed": ["endless", "done"], "kept": ["endless", "done"]})
    pid = zygote.ask(supervise=str(tmp_path))
    kept = wait_until_running(tmp_path, "kept-ppo-s1", steps=3)
    wait_until_running(tmp_path, "changed-ppo-s1", steps=3)
    change_listing(tmp_path, lambda listing: changed(listing, ["changed"], {"batch-size": 64}, "change"))
    listing = read_listing(tmp_path)
    assert [slot.name for slot in listing.slots] == ["changed-ppo-s1.v2", "kept-ppo-s1"]
    wait_for(lambda: statuses_of(tmp_path, listing)["changed"].state == "done", "the changed run is done")
    old_run = read_holder(tmp_path, "changed-ppo-s1")
    assert old_run is not None
    assert (old_run.state, old_run.is_stopped, old_run.steps > 0) == ("ended", True, True)
    change_listing(tmp_path, lambda listing: undone(listing, "undo"))
    before = read_listing(tmp_path)
    wait_for(lambda: statuses_of(tmp_path, before)["changed"].state == "done", "the old run is done")
    assert statuses_of(tmp_path, before)["kept"].holder == read_holder(tmp_path, "kept-ppo-s1")
    kill(kept)
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the supervisor ends")
    rows = begun(tmp_path)
    assert sorted(row["slot"] for row in rows) == [
        *("changed-ppo-s1", "changed-ppo-s1", "changed-ppo-s1.v2", "kept-ppo-s1", "kept-ppo-s1")
    ]
    resumed = [row["steps"] for row in rows if row["slot"] == "changed-ppo-s1"]
    assert resumed == [0, old_run.steps]
    assert len(list((tmp_path / "runs").glob("*/*/*/*"))) == 3


def test_a_run_that_begins_after_its_slot_has_left_the_list_is_stopped_too(tmp_path: Path, zygote: Zygote) -> None:
    make_fleet(tmp_path, {"old": ["endless"], "new": ["done"]}, concurrency=1)
    late: list[int] = []

    class LateEngine(QuickEngine):
        """Its runners begin after a while."""

        def place(self, slot: str, threads: int) -> None:
            if slot == "old-ppo-s1":
                change_listing(tmp_path, lambda listing: changed(listing, ["old"], {"lr": 1.0}, "change"))
                threading.Timer(0.3, lambda: late.append(zygote.ask(run=str(tmp_path), slot=slot))).start()
            else:
                super().place(slot, threads)

    supervisor.supervise(tmp_path, LateEngine(tmp_path, zygote), Listening(), lambda: None)
    wait_for(lambda: late and not Path(f"/proc/{late[0]}").exists(), "the late one ends")
    holder = read_holder(tmp_path, "old-ppo-s1")
    assert holder is not None
    assert (holder.state, holder.is_stopped) == ("ended", True)


@pytest.mark.parametrize("is_another_boot", [True, False])
def test_after_a_reboot_no_process_that_has_an_old_number_is_taken_for_a_run(
    tmp_path: Path, zygote: Zygote, *, is_another_boot: bool
) -> None:
    listing = make_fleet(tmp_path, {"game": ["endless", "done"]})
    pid = zygote.ask(supervise=str(tmp_path))
    kill_both = [wait_until_running(tmp_path, "game-ppo-s1", steps=3), pid]
    for number in kill_both[::-1]:
        kill(number)
    for name in ("game-ppo-s1", SUPERVISOR):  # both numbers now belong to this process
        holder = read_holder(tmp_path, name)
        assert holder is not None
        boot_id = "before" if is_another_boot else holder.place.boot_id
        place = Place(holder.place.host, boot_id, holder.place.pid_namespace)
        holder = msgspec.structs.replace(holder, pid=os.getpid(), place=place)
        (tmp_path / "leases" / name / f"{holder.epoch:06d}.json").write_bytes(encode(holder))
    assert statuses_of(tmp_path, listing)["game"].state == "waiting"
    seconds = wait_for(lambda: train(tmp_path, zygote), "all is done")
    assert seconds < 30
    status = statuses_of(tmp_path, listing)["game"]
    assert (status.state, status.attempt) == ("done", 2)


def test_a_torn_log_of_slots_is_no_loss(tmp_path: Path, zygote: Zygote) -> None:
    listing = make_fleet(tmp_path, {"a": ["done"], "b": ["endless", "done"]})
    pid = zygote.ask(supervise=str(tmp_path))
    runner = wait_until_running(tmp_path, "b-ppo-s1")
    wait_for(lambda: statuses_of(tmp_path, listing)["a"].state == "done", "a is done")
    kill(pid)
    kill(runner)
    log = tmp_path / SLOTS_JSONL
    log.write_bytes(b'{"schema":1,"slot":"a-ppo-s1","state":"run' + log.read_bytes()[:-40])
    train(tmp_path, zygote)
    assert {status.state for status in statuses_of(tmp_path, listing).values()} == {"done"}
    assert [row["slot"] for row in begun(tmp_path)].count("a-ppo-s1") == 1


def test_runners_that_never_take_their_lease_are_given_up(tmp_path: Path, zygote: Zygote) -> None:
    class DeadEngine(QuickEngine):
        """Its runners end at once."""

        def place(self, slot: str, threads: int) -> None:
            self.placed.append(slot)

        def exit_code(self, slot: str) -> int | None:
            return 127

    listing = make_fleet(tmp_path, {"game": ["done"]})
    engine = DeadEngine(tmp_path, zygote)
    supervisor.supervise(tmp_path, engine, Listening(), lambda: None)
    status = statuses_of(tmp_path, listing)["game"]
    assert (status.state, len(engine.placed)) == ("given up", 3)
    assert status.reason.startswith("its process ended with exit code 127: see ")


def test_a_run_that_hangs_is_killed_and_goes_on(
    tmp_path: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "HEALTH_S", 0.2)
    monkeypatch.setattr(hung, "QUIET_S", 0.1)
    monkeypatch.setattr(hung, "HUNG_S", 0.5)
    listing = make_fleet(tmp_path, {"game": ["hang", "done"]})
    _, display = train(tmp_path, zygote)
    status = statuses_of(tmp_path, listing)["game"]
    assert (status.state, status.attempt) == ("done", 2)
    assert "game-ppo-s1: it hangs and is killed, to go on from its last checkpoint" in display.notes


def test_nothing_is_started_on_a_full_disk(tmp_path: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    make_fleet(tmp_path, {"game": ["done"]})
    free = iter([1e6] * 5 + [1e12] * 10_000)
    monkeypatch.setattr(supervisor, "free_bytes", lambda _: next(free))
    summary, display = train(tmp_path, zygote)
    assert summary.counts["done"] == 1
    told = [note for note in display.notes if "are free in" in note]
    assert len(told) == 1
    assert "no run is started below 200.00 MB" in told[0]


def test_a_list_that_cannot_be_read_any_more_does_not_end_the_supervision(tmp_path: Path, zygote: Zygote) -> None:
    listing = make_fleet(tmp_path, {"game": ["endless", "done"]})
    text, looks = (tmp_path / "fleet.json").read_text(), 0

    def stop() -> None:
        nonlocal looks
        running = statuses_of(tmp_path, listing)["game"]
        if running.attempt == 1 and running.steps > 3:
            looks += 1
            (tmp_path / "fleet.json").write_text("[[[" if looks < 10 else text)
            if looks == 10 and running.holder is not None:
                os.kill(running.holder.pid, signal.SIGTERM)

    summary, display = train(tmp_path, zygote, stop=stop)
    assert (summary.counts["done"], statuses_of(tmp_path, listing)["game"].attempt) == (1, 2)
    assert sum("the one before counts" in note for note in display.notes) == 1


def test_a_list_that_has_forgotten_a_slot_does_not_end_the_supervision(tmp_path: Path, zygote: Zygote) -> None:
    listing = make_fleet(tmp_path, {"forgotten": ["endless"], "kept": ["endless", "done"]})
    pid = zygote.ask(supervise=str(tmp_path))
    for name in ("forgotten", "kept"):
        wait_until_running(tmp_path, f"{name}-ppo-s1", steps=3)
    write_listing(tmp_path, new_listing("quick", listing.wishes, listing.slots[1:], "by hand"))
    wait_for(lambda: statuses_of(tmp_path, listing)["forgotten"].state == "stopped", "it is stopped")
    assert Path(f"/proc/{pid}").exists()
    kill(wait_until_running(tmp_path, "kept-ppo-s1"))
    wait_for(lambda: statuses_of(tmp_path, listing)["kept"].state == "done", "the other run is done")


@pytest.mark.parametrize("name", ["runs", "runs/game-ppo-s1", "runs/game-ppo-s1/game"])
def test_no_run_is_trained_behind_a_link(tmp_path: Path, zygote: Zygote, name: str) -> None:
    listing = make_fleet(tmp_path, {"game": ["done"]})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    train(tmp_path, zygote)
    status = statuses_of(tmp_path, listing)["game"]
    assert (status.state, status.attempt) == ("given up", 1)
    assert status.reason.startswith(f"{tmp_path / name} is a link, not a folder of Redline")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert begun(tmp_path) == []


def test_a_full_disk_costs_rows_until_there_is_room_again(small_disk: Path) -> None:
    with SlotLog(small_disk / SLOTS_JSONL) as log:
        log.write({"slot": "a", "number": 0})
        filler = fill(small_disk)
        for number in range(1, 200):
            log.write({"slot": "a", "number": number, "long": "x" * 100})
        assert log.trouble == "no space left on device"
        filler.unlink()
        log.flush()
        assert log.trouble is None
    assert [row["number"] for row in read_records(small_disk / SLOTS_JSONL)] == list(range(200))
