"""The options of every command with their types, as the program's own help tells them."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

# the text that a command line prints
Ask = Callable[[Sequence[str]], str]

COMMAND_LINE = re.compile(r"^  ([a-z]+)  +\S", re.MULTILINE)
WORDS_LINE = re.compile(r'^ +([a-z]+)\) words="([^"]*)"', re.MULTILINE)
OPTION = re.compile(r" *(?:-\w, )?(--[a-z][a-z0-9.-]*)(?: (\S+|\[\w+ \[.*?\]\]))?(?:, -|  |$)")
BORDER = "│"  # of the boxes, several of which may stand side by side
WHOLE_HELP = {"train": "--help-all"}  # where --help shows only a part
SWITCH = ""  # takes no value


@dataclass(frozen=True)
class Option:
    """A flag, and the type of its value in the words of the help: INT, FLOAT, PATH, STR, {a,b}, or nothing."""

    flag: str
    takes: str

    @property
    def choices(self) -> list[str]:
        """Return the values to choose from; empty if there is no such list."""
        found = re.search(r"\{([^}]+)\}", self.takes.replace("{None}|", ""))
        return found[1].split(",") if found else []


@dataclass(frozen=True)
class Command:
    """A command with its subject, such as `plan memory`, and its options."""

    words: tuple[str, ...]
    options: tuple[Option, ...]

    @property
    def name(self) -> str:
        """Return it as it is typed."""
        return " ".join(self.words)


def read_commands(ask: Ask) -> list[Command]:
    """Return all commands; those with subjects once for each."""
    subjects = {name: _subjects(words) for name, words in WORDS_LINE.findall(ask(["completion", "bash"]))}
    found = []
    for name in COMMAND_LINE.findall(ask(["--help"])):
        several: list[tuple[str, ...]] = [(name, subject) for subject in subjects.get(name, ())]
        for words in several or [(name,)]:
            found.append(Command(words, read_options(ask([*words, WHOLE_HELP.get(name, "--help")]))))
    return found


def read_options(text: str) -> tuple[Option, ...]:
    """Return the options that a help names, each once."""
    found: dict[str, Option] = {}
    for cell in (cell for line in text.splitlines() for cell in line.split(BORDER)):
        if match := OPTION.match(cell.rstrip()):
            found.setdefault(match[1], Option(match[1], match[2] or SWITCH))
    found.pop("--help", None)
    found.pop("--help-all", None)
    return tuple(found.values())


def to_json(commands: Sequence[Command]) -> str:
    """Return commands as text."""
    return json.dumps([asdict(command) for command in commands])


def from_json(text: str) -> list[Command]:
    """Return the commands that a text holds."""
    return [
        Command(tuple(item["words"]), tuple(Option(**option) for option in item["options"]))
        for item in json.loads(text)
    ]


def _subjects(words: str) -> list[str]:
    return [word for word in words.split() if not word.startswith("-")]
