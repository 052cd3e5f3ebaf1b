"""The parts of a page as Markdown: complete, and no text of a file becomes markup."""

import pytest

from redline.report.charts import Line, LineChart, Spread, SpreadChart
from redline.report.markdown import escaped, write_markdown
from redline.report.parts import Cell, Grid, Notice, Section, Table, Text, Tiles


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ms_pacman, 1.5 × (n = 3)", "ms_pacman, 1.5 × (n = 3)"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("a|b [x](javascript:1) `c` **d** ~e~", r"a\|b \[x\](javascript:1) \`c\` \*\*d\*\* \~e\~"),
        ("_emphasis_ __strong__", r"\_emphasis\_ \_\_strong\_\_"),
        ("# heading\n- list", r"\# heading - list"),
        ("- list", r"\- list"),
        ("1. list", r"1\. list"),
        ("1.5", "1.5"),
        ("\x1b[2J\u202e\ud800", r"\[2J"),
        ("\\|", r"\\\|"),
    ],
)
def test_text_means_nothing(text: str, line: str) -> None:
    assert escaped(text) == line


def test_every_part_is_written() -> None:
    curve = Line("dqn", [0.0, 100.0], [0.0, 40.0], low=[0.0, 20.0], high=[0.0, 60.0])
    parts = [
        Tiles([("slots", "3", "of 4")]),
        Notice("Missing", ["one", Cell("two", note="why", is_strong=True)], css="missing"),
        Section(
            "Scores",
            [
                Table("Scores", ("game", "score"), [("pong", Cell("20", note="n = 3"))], numeric=(1,)),
                Section("Curves", [Grid([LineChart("c", "Return", "mean", "steps", (curve,))])], is_folded=True),
                Grid([SpreadChart("s", "Spread", "unit", (Spread("a", (1.0, 3.0), 2.0, None, None, 0),))]),
                Text("- the end"),
            ],
            lead="By game.",
        ),
    ]
    assert write_markdown("A fleet", "", parts, unix_s=0.0).split("\n\n")[2:] == [
        "- slots: 3 (of 4)",
        "**Missing**",
        "- one\n- **two** (why)",
        "## Scores",
        "By game.",
        "| game | score |\n| --- | ---: |\n| pong | 20 (n = 3) |",
        "### Curves",
        "**Return** (mean)",
        "| line | steps | at 25% of it | at 50% of it | at 75% of it | at 100% of it |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| dqn | 0 … 100 | 10 (5 … 15) | 20 (10 … 30) | 30 (15 … 45) | 40 (20 … 60) |",
        "**Spread** (unit)",
        "| row | mean | interval | values |\n| --- | ---: | --- | --- |\n| a | 2 | – | 1, 3 |",
        "\\- the end\n",
    ]
