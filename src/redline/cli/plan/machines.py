"""`redline plan machines`: the user's own list of machines, ranked by the money and hours of a training."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.bench.measuring import MAX_BUSY_PERCENT
from redline.cli.bench import tell
from redline.cli.flags import TrainFlags
from redline.cli.output import give, print_table
from redline.cli.parsing import parse
from redline.cli.plan.asked import asked_training, measure_training, training_defaults
from redline.errors import UserError, check_range
from redline.plan.machines import (
    EXTRAPOLATED,
    MEASURED,
    SYSTEM_BYTES,
    TRUSTED_TIMES,
    Needs,
    Ranking,
    Row,
    Scaling,
    counts_to_measure,
    machines_in,
    rank,
)
from redline.plan.pinned import Pinned
from redline.plan.time import digits_for, exact, rounded
from redline.recipes import read_toml
from redline.runs.host import usable_cores
from redline.units import rate, size

PROGRAM = "redline plan machines"
HEAD = ("machine", "cores", "memory", "GPU", "per hour", "hours per 1M steps", "money per 1M steps", "speed", "")


@dataclass(frozen=True)
class PlanMachinesFlags:
    """Rank machines by what a million steps of a training cost there. Takes the flags of redline train; saves no run.

    FILE is TOML with a table [[machine]] for each: name, cores, memory_gb, price_per_hour, and gpu if it has one.
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """TOML file of machines."""
    train: Annotated[TrainFlags, tyro.conf.arg(name="")]
    """What is to be trained."""
    rounds: int = 7
    """Windows measured with each number of cores, by turns."""
    seconds: float = 3.0
    """Seconds of each window; at least a whole rollout."""

    def __post_init__(self) -> None:
        check_range("rounds", self.rounds, 1, 1_000)
        check_range("seconds", self.seconds, 0.1, 3_600)


def run(args: Sequence[str]) -> int:
    """Read, measure, rank, print."""
    usual = PlanMachinesFlags(file=tyro.MISSING, train=training_defaults(args))
    flags = parse(PlanMachinesFlags, args, default=usual, prog=PROGRAM)
    machines = machines_in(read_toml(flags.file, "file of machines"), flags.file)
    asked = asked_training(flags.train, args)
    if asked.job.device not in ("auto", "cpu"):
        raise UserError(f"--device {asked.job.device} can't be compared: cores are measured alone, leave it out")
    counts = counts_to_measure(usable_cores(), [machine.cores for machine in machines])
    pinned = measure_training(
        asked, counts=counts, rounds=flags.rounds, window_s=flags.seconds, progress=tell, on_cpu=True
    )
    needs = Needs(processes_bytes=pinned.processes_bytes, layout=pinned.resolved.layout)
    ranking = rank(machines, pinned.scaling, needs)
    facts = facts_of(asked, pinned, needs, ranking)
    return give(facts, asked, lambda _, plain: show(asked, pinned, needs, ranking, plain=plain))


def facts_of(asked: TrainFlags, pinned: Pinned, needs: Needs, ranking: Ranking) -> dict[str, Any]:
    """Return everything as one plain object."""
    scaling, best = pinned.scaling, (ranking.cheapest, ranking.cheapest_not_extrapolated, ranking.quickest)
    enough = scaling.enough()
    cheapest, known, quickest = (None if row is None else row.machine.name for row in best)
    return {
        "algorithm": asked.algo,
        "env": asked.job.env.id,
        "measured": {
            str(cores): {**speed.to_json(), "rounds": len(pinned.windows[cores])}
            for cores, speed in scaling.measured.items()
        },
        "fit": {"law": "Amdahl", "serial_s_per_step": scaling.serial_s, "parallel_s_per_step": scaling.parallel_s},
        "roles": {name: asdict(use) for name, use in pinned.roles.items()},
        "needed_memory_bytes": needs.memory_bytes,
        "rows": [row.to_json() for row in ranking.rows],
        "enough": None if enough is None else asdict(enough),
        "cheapest": cheapest,
        "cheapest_not_extrapolated": known,
        "quickest": quickest,
        "others_percent": pinned.others_percent,
        "disturbed_windows": pinned.disturbed,
    }


def show(asked: TrainFlags, pinned: Pinned, needs: Needs, ranking: Ranking, *, plain: bool) -> None:
    """Print what was measured, what the training needs, the machines, and which are the best."""
    job, scaling = pinned.resolved.job, pinned.scaling
    rounds = min(map(len, pinned.windows.values()))
    print(f"{asked.algo} on {job.env.id}, {job.num_envs} envs, {job.topology}; measured here, {rounds} windows each")
    rows = [
        (str(cores), f"{rate(speed.steps_per_s)} ({rate(speed.low_steps_per_s)}–{rate(speed.high_steps_per_s)})")
        for cores, speed in scaling.measured.items()
    ]
    print_table(("cores", "steps/s"), rows, plain=plain, numeric=(0, 1))
    print_table(("process", "cores used", "memory"), role_cells(pinned), plain=plain, numeric=(1, 2))
    print(needs_words(needs))
    print()
    print_table(HEAD, [machine_cells(row, ranking) for row in ranking.rows], plain=plain, numeric=(1, 2, 4, 5, 6))
    for line in remarks(scaling, ranking):
        print(line)
    if pinned.others_percent > MAX_BUSY_PERCENT:
        print(f"others used {pinned.others_percent:.0f} % of the CPU meanwhile: a free machine is faster")


def role_cells(pinned: Pinned) -> list[tuple[str, str, str]]:
    """Return the cells of what each process takes."""
    return [(name, f"{use.cores:.1f}", size(use.memory_bytes)) for name, use in pinned.roles.items()]


def needs_words(needs: Needs) -> str:
    """Return the memory that a machine must have, in a line."""
    layout = needs.layout
    replay = "" if layout is None else f"{size(layout.ram_bytes)} for a replay memory of {layout.capacity:,}, "
    return (
        f"a machine needs {size(needs.memory_bytes)} of memory: {replay}{size(needs.beside_bytes)} for the processes, "
        f"{size(SYSTEM_BYTES)} for its operating system"
    )


def machine_cells(row: Row, ranking: Ranking) -> tuple[str, ...]:
    """Return the cells of one machine."""
    machine, facts = row.machine, row.to_json()
    names = [name for name in ("cheapest", "quickest") if getattr(ranking, name) is row]
    if not row.fits:
        names = [f"does not fit: {capacity_words(row)}"]
    spans = [
        f"{figure(facts[f'{name}_per_1m_steps'])} ({figure(facts[f'low_{name}'])}–{figure(facts[f'high_{name}'])})"
        for name in ("hours", "cost")
    ]
    basis = row.speed.basis if machine.gpu is None else f"{row.speed.basis}, GPU not measured"
    return (
        machine.name,
        str(machine.cores),
        size(machine.memory_bytes, 1),
        machine.gpu or "–",
        f"{machine.price_per_hour:g}",
        *spans,
        basis,
        ", ".join(names),
    )


def capacity_words(row: Row) -> str:
    """Return what would fit a machine that is too small."""
    if row.largest_capacity:
        return f"--replay.capacity {row.largest_capacity:_} would"
    return "too little memory" if row.largest_capacity is None else "no replay memory would"


def figure(value: float) -> str:
    """Return hours or money with three significant digits, halves rounded up."""
    return f"{rounded(exact(value), digits_for(exact(value))):,}"


def remarks(scaling: Scaling, ranking: Ranking) -> list[str]:
    """Return where more cores stop paying, the best machines, and what is uncertain."""
    most = scaling.most_cores
    lines = [enough_words(scaling)]
    cheapest, known, quickest = ranking.cheapest, ranking.cheapest_not_extrapolated, ranking.quickest
    if cheapest is None or quickest is None:
        return [*lines, "no machine without a GPU has the memory: add a larger one, or train with smaller settings"]
    lines.append(f"cheapest: {best_words(cheapest)}")
    if known is not None and known is not cheapest:
        lines.append(f"cheapest of those with at most {most} cores, as many as were measured: {best_words(known)}")
    lines.append(f"quickest: {best_words(quickest)}")
    if any(row.speed.basis == EXTRAPOLATED for row in ranking.rows):
        law = f"by Amdahl's law from at most {most} cores, up to {TRUSTED_TIMES * most}; "
        ends = "in the lower end of the hours it holds for all cores, in the upper end further cores add nothing"
        alone = "as fast as one core; in the lower end of the hours each core adds as much as the first"
        lines.append(f"extrapolated: {alone if most == 1 else law + ends}")
    if any(row.machine.gpu for row in ranking.rows):
        lines.append("a GPU is not measured here: its row counts the cores alone, and is never named the best")
    lines.append("the cores of another machine may be faster or slower than these")
    return lines


def enough_words(scaling: Scaling) -> str:
    """Return after how many cores the next one adds little, in words."""
    enough = scaling.enough()
    if scaling.most_cores == 1:
        return "one core was measured: it can't tell whether a second pays"
    if enough is None:
        return f"each of {scaling.most_cores} cores pays; where that ends can't be told from so few"
    basis = "" if enough.basis == MEASURED else f" ({enough.basis})"
    adds = f"{enough.next_gain * 100:.1f} %, less than 5 %" if enough.next_gain > 0.0 else "nothing"
    return f"{enough.cores} core{'s are' if enough.cores > 1 else ' is'} enough: one more adds {adds}{basis}"


def best_words(row: Row) -> str:
    """Return a machine with its figures, in words."""
    mark = f", {row.speed.basis}" if row.speed.basis != MEASURED else ""
    return f"{row.machine.name}, {figure(row.hours)} h and {figure(row.cost)} per 1M steps{mark}"
