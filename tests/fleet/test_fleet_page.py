"""The list in docs/fleet.md is one that can be read, and lists what the page says."""

from pathlib import Path

from redline.fleet.list_file import read_list

PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"


def test_list_of_the_page_is_ten_games_times_two_algorithms_three_seeds_and_two_variants(tmp_path: Path) -> None:
    source = tmp_path / "fleet.toml"
    source.write_text(PAGE.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    asked = read_list(source, {})
    assert asked.name == "ten-games"
    assert len(asked.slots) == 10 * 2 * 3 * 2
    assert {slot.settings["batch-size"] for slot in asked.slots if slot.game == "breakout"} == {64}
    assert {slot.settings["batch-size"] for slot in asked.slots if slot.game == "pong"} == {32, 64}
