"""Runs on a Slurm cluster: a script for sbatch, in which each task of an array trains one slot and requeues itself.

Nothing supervises: Slurm starts the tasks, leases keep a slot to one process, and the fleet's files tell how it stands.
"""

import shlex
import sys
from pathlib import Path

from redline.errors import UserError
from redline.files import explained, make_folder
from redline.fleet.engines.base import command_of
from redline.fleet.lease import read_holder
from redline.fleet.listing import Listing, ordered, read_listing
from redline.fleet.slots import LOGS, Book

NOTICE_S = 60  # before the time limit of a job: enough for a checkpoint
MOST_REQUEUES = 1_000  # attempts without progress end much earlier
CLOCK_S = 2.0  # by which the shell's whole seconds and the file's may differ

SCRIPT = """\
#!/bin/bash
# Trains the fleet {name}: each task of the array trains one slot, and goes on with it after a requeue.
# Add what your cluster asks for to the command: sbatch --partition … --time … --mem … SCRIPT
# --cpus-per-task decides the threads of a run too.
#SBATCH --job-name=redline-{name}
#SBATCH --array=0-{last}{at_a_time}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={threads}
#SBATCH --requeue
#SBATCH --signal=B:TERM@{notice_s}
#SBATCH --open-mode=append
#SBATCH --output="{output}"

slots=({slots})
slot=${{slots[${{SLURM_ARRAY_TASK_ID:?submit this script with sbatch}}]:?the fleet has no such task}}
began=$(date +%s)

runner=
trap 'is_signalled=1; [ -z "$runner" ] || kill -TERM "$runner" 2>/dev/null' TERM  # Slurm tells this shell alone
{train} "$slot" --threads "${{SLURM_CPUS_PER_TASK:-{threads}}}" &
runner=$!
while
    is_signalled=
    wait "$runner"
    code=$?
    [ -n "$is_signalled" ]  # a signal ends the wait, not the runner
do :; done
runner=

if ! {ask} "$slot" "$began"; then
    echo "$slot: over, exit code $code"
    exit "$code"
fi
if [ "${{SLURM_RESTART_COUNT:-0}}" -ge {most_requeues} ]; then
    echo "$slot: exit code $code, and not requeued: this was requeued {most_requeues} times"
    exit "$code"
fi
echo "$slot: exit code $code, requeued"
scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}" || exit "$code"
"""


def slurm_script(folder: Path, listing: Listing, *, threads: int = 1) -> str:
    """Return the script that trains a fleet, and make the folder in which Slurm writes its output."""
    folder = folder.absolute()
    if not str(folder).isprintable() or not {'"', "\\"}.isdisjoint(str(folder)):
        raise UserError(f"Slurm can't write into {str(folder)!r}: use --dir with another name")
    with explained(UserError, folder):
        make_folder(folder / LOGS)
    slots = [slot.name for slot in ordered(listing.slots, listing.wishes.order)]
    train = command_of(folder, "SLOT", threads)
    ask = [sys.executable, "-m", __name__, str(folder)]
    return SCRIPT.format(
        name=listing.name,
        last=len(slots) - 1,
        at_a_time=f"%{listing.wishes.concurrency}" if listing.wishes.concurrency else "",
        threads=threads,
        notice_s=NOTICE_S,
        output=str(folder / LOGS).replace("%", "%%") + "/slurm-%a.log",
        slots=" ".join(map(shlex.quote, slots)),
        train=shlex.join(train[: train.index("SLOT")]),
        ask=shlex.join(ask),
        most_requeues=MOST_REQUEUES,
    )


def is_to_go_on(folder: Path, name: str, since_unix_s: float) -> bool:
    """Tell whether a slot waits to be trained further, after an attempt that began since then on this machine.

    One that could not even take its lease would fail again.
    """
    slot = read_listing(folder).all_slots.get(name)
    holder = read_holder(folder, name)
    if slot is None or holder is None or holder.began_unix_s < since_unix_s - CLOCK_S:
        return False
    return Book(folder).status(slot).state == "waiting"


if __name__ == "__main__":
    try:
        sys.exit(0 if is_to_go_on(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])) else 1)
    except UserError as error:
        sys.exit(f"redline: {error}")
