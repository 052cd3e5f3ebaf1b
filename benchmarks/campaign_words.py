"""Hypothesis strategies for what a user may type: values of every type, boundary numbers, and hostile strings."""

import json

from hypothesis import strategies as st

from campaign_options import SWITCH, Option

NUMBERS = (
    *("inf", "-inf", "nan", "1e400", "-1e400", "1e-320", "1e308", "0", "-0", "-1", "0.0", "-0.5", "1e-9"),
    *("2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "99999999999999999999"),
    *("9" * 5_000, "0." + "3" * 5_000, "1_000", "1__0", "_1", "0x10", "1e3", "½", "٣", " 7", "7 ", "+7", "1,000"),
)
STRINGS = (
    *("", " ", "-", "--", "None", "none", "true", "null", "{}", "[]", "%s", "${HOME}", "`id`", ";", "x" * 300),
    *(
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "a\nb",
        "a\rb",
        "\t",
        "\x7f",
        "\u202egnp",
        "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    ),
    *("\udcff\udcfe", "caf\udce9", "\u0000".replace("\0", "\x01"), "é" * 200, "x" * 100_000),
)
# none of them leads to a place where something could be written outside the case
PATHS = (
    *("", ".", "..", "x", "new/deep/folder", "x.html", "x.json", "x.png", "/dev/null/x", "/proc/nowhere/x", "~", "-x"),
    *("x" * 300, "a/" * 2_000, "x/" + "y" * 256, "\udcff\udcfe", "a\nb", "\x1b[31m", "file", "file/below"),
)
READ_ONLY_FLAGS = ("--config", "--space")
DEVICES = ("/dev/zero", "/dev/urandom", "/dev/full", "/dev/tty", "/dev/stdin", "fifo", ".", "/proc/self/mem")
ENVS = (
    *("CartPole-v1", "redline/Catch-v0", "pong", "Acrobot-v1", "CartPole-v9", "pongg", "Pendulum-v1", "ALE/Pong-v5"),
    *("no_such:Env-v0", ":x", "x:", "..:x", "a.b:c", "gymnasium:CartPole-v1", "redline/Nothing-v0", "Blackjack-v1"),
)
ALGORITHMS = ("dqn", "ppo", "a2c", "pqn", "c51", "rainbow", "DQN", "dqm", "drqn", "noisy-dqn", "quantile-rainbow")
PARTS = (
    "mlp",
    "nature",
    "small",
    "strided",
    "twin",
    "noisy",
    "normed",
    "gru",
    "dueling",
    "categorical",
    "quantiles",
    "online-chooses",
    "clipped",
    "q-lambda",
    "greedy",
    "sampled",
    "prioritized",
    "rmsprop",
    "radam",
    "zstd",
    "raw",
)
MORE_STRINGS = (
    "auto",
    "cpu",
    "cuda",
    "cuda:99",
    "1-3",
    "1,5",
    "9-1",
    "newest",
    "best",
    "16",
    "all",
    "e1",
    "best:3",
    "return-at-steps:100",
    "steps-to-return:1e400",
    "return-at-minutes",
    "minutes-to-return:nan",
    "pong,zz",
)


def numbers(*, is_whole: bool) -> st.SearchStrategy[str]:
    """Return numbers as they are typed: ordinary ones, and those at the edge of some type."""
    ordinary = st.integers(1, 64).map(str) if is_whole else st.floats(0.001, 4.0).map(lambda value: f"{value:.4g}")
    anything = st.integers().map(str) if is_whole else st.floats().map(repr)
    return st.one_of(ordinary, st.sampled_from(NUMBERS), anything)


def values(option: Option) -> st.SearchStrategy[str]:
    """Return values of an option: fitting, at the edge, and of another type."""
    fitting = _fitting(option)
    other = st.one_of(numbers(is_whole=False), st.sampled_from(STRINGS))
    return st.one_of(fitting, fitting, other)


def _fitting(option: Option) -> st.SearchStrategy[str]:
    known: dict[str, tuple[str, ...]] = dict.fromkeys(("--env", "--env.id"), ENVS)
    known |= dict.fromkeys(("--algo", "--model"), ALGORITHMS)
    if option.choices or option.flag in known:
        return st.sampled_from(option.choices or known[option.flag])
    if "PATH" in option.takes:
        return st.sampled_from(PATHS + (DEVICES if option.flag in READ_ONLY_FLAGS else ()))
    if "INT" in option.takes or "FLOAT" in option.takes:
        return numbers(is_whole="INT" in option.takes)
    return st.sampled_from((*PARTS, *MORE_STRINGS, *STRINGS))


@st.composite
def near_misses(draw: st.DrawFn, name: str) -> str:
    """Return a name with a letter too many or too few, two exchanged, or written otherwise."""
    at = draw(st.integers(2, max(len(name) - 2, 2)))
    return draw(
        st.sampled_from(
            (
                name[:at] + name[at + 1 :],
                name[:at] + name[at : at + 1] * 2 + name[at + 1 :],
                name[:at] + name[at : at + 2][::-1] + name[at + 2 :],
                name.replace("-", "_"),
                name.upper(),
                name[1:],
                f"{name}.more",
            )
        )
    )


@st.composite
def typed_option(draw: st.DrawFn, option: Option) -> list[str]:
    """Return an option as it is typed: with a space or an equals sign, without its value, or with two."""
    flag, how = option.flag, draw(st.sampled_from(range(16)))
    if option.takes == SWITCH:
        return [f"{flag}=x"] if how == 0 else [flag]
    value = draw(values(option))
    spellings = {0: [flag], 1: [flag, value, value], 2: [draw(near_misses(flag)), value]}
    return spellings.get(how, [f"{flag}={value}"] if how < 7 else [flag, value])


def toml_values(option: Option) -> st.SearchStrategy[str]:
    """Return values of an option as TOML: fitting, at the edge, of another type, and no TOML at all."""
    text = values(option)
    quoted = text.map(lambda value: json.dumps(value.encode(errors="replace").decode()))
    strange = st.sampled_from(
        (
            *(
                '"\\u0000"',
                '"a\\u0000b"',
                '"\\u001b[31m"',
                "''",
                "'''\nx\n'''",
                "true",
                "[]",
                "{}",
                "[[1]]",
                "[1, 'a']",
            ),
            *(
                "1979-05-27",
                "07:32:00",
                "0xff",
                "0o7",
                "0b1",
                "1e400",
                "-inf",
                "nan",
                "9" * 5_000,
                "1_000",
                "",
                "=",
                '"',
            ),
            *("[" * 300 + "]" * 300, "{a = {b = 1}}", "{name = 'adam', lr = inf}", '"\\ud800"'),
        )
    )
    return st.one_of(text, quoted, strange)
