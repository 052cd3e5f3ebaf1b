"""What a page shows of the list of a fleet: its settings, its versions, and what each change did."""

from __future__ import annotations

from collections.abc import Sequence

from redline.fleet.listing import Listing, Version
from redline.fleet.scores import Change, GameChange
from redline.report.parts import DASH, Cell, Content, Part, Section, Table, Text, amount, moment

MAX_SETTINGS = 12  # of a change, in words


def change_sections(changes: Sequence[Change], listing: Listing) -> list[Section]:
    """Return the versions of the list, and what each change did; nothing for a list that was never changed."""
    if not changes:
        return []
    first = listing.versions[0]
    rows: list[Sequence[Content]] = [
        ("1", moment(first.unix_s), str(len(first.slots)), "the first list", first.command)
    ]
    for change in changes:
        version = change.version
        rows.append(
            (
                str(change.number),
                moment(version.unix_s),
                str(len(version.slots)),
                _what(change, listing),
                version.command,
            )
        )
    head = ("version", "when", "slots", "what changed", "command")
    parts: list[Part] = [Table("Versions of the list", head, rows, numeric=(0, 2), css="card wrap")]
    parts += [part for change in changes if change.games for part in _comparison(change)]
    lead = (
        "Runs of a version stay when the list changes, so both sides can be compared: the mean of the last 100 "
        "episodes at the steps that all compared runs have reached, and the 90 % interval of the difference (Welch's "
        "t; none for fewer than three runs on a side)."
    )
    return [Section("Changes of the list", parts, "changes", lead=lead, link="changes")]


def _what(change: Change, listing: Listing) -> str:
    if not change.new_slots:
        names = {slot.name for slot in change.version.slots}
        again = (
            number
            for number, version in enumerate(listing.versions[: change.number - 1], start=1)
            if {slot.name for slot in version.slots} == names
        )
        return f"undone: the slots of version {next(again, '?')} again"
    settings = list(change.settings[:MAX_SETTINGS]) + ["…"] * (len(change.settings) > MAX_SETTINGS)
    return f"{change.new_slots} slots: {', '.join(settings) or 'new on the list'}"


def _comparison(change: Change) -> list[Part]:
    rows = [
        (
            game.game,
            f"{game.old_kind} → {game.new_kind}",
            amount(game.steps),
            _side(game.old),
            _side(game.new),
            _signed(game.difference),
            _difference_interval(game),
        )
        for game in change.games
    ]
    head = ("game", "runs", "at steps", "before", "after", "difference", "90 % interval")
    title = f"Version {change.number}: {', '.join(change.settings[:MAX_SETTINGS])}"
    parts: list[Part] = [Table(title, head, rows, numeric=range(2, len(head)))]
    if change.overall is not None:
        ends = change.overall.interval
        interval = f", 95 % interval {_signed(ends[0])} … {_signed(ends[1])} (bootstrap over seeds)" if ends else ""
        words = f"Human-normalised, on average over these rows: {_signed(change.overall.point)}{interval}."
        parts.append(Text(words))
    return [Section(title, parts)]


def _side(values: Sequence[float]) -> Content:
    return Cell(amount(sum(values) / len(values)), note=f"n = {len(values)}") if values else DASH


def _signed(value: float | None) -> str:
    text = amount(value)
    return text if value is None or value <= 0 or text == DASH else f"+{text}"


def _difference_interval(game: GameChange) -> str:
    return DASH if game.interval is None else f"{_signed(game.interval[0])} … {_signed(game.interval[1])}"


def settings_section(version: Version) -> Section:
    """Return the settings of the newest list, those that all slots share in one row."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for slot in version.slots:
        settings = tuple((name, str(value)) for name, value in slot.settings.items())
        groups.setdefault(settings, []).append(slot.name)
    rows = [
        (
            _some(names) if len(groups) > 1 else f"all {len(names)}",
            ", ".join(f"{name} {value}" for name, value in settings) or "the usual ones",
        )
        for settings, names in groups.items()
    ]
    table = Table("Settings", ("slots", "settings"), rows, css="card long wrap")
    note = f"{len(version.slots)} slots"
    return Section(
        "The list, and its settings", [table, Text(f"Made by: {version.command}")], "list", is_folded=True, note=note
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
