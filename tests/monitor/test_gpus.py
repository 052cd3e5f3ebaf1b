import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redline.jsonl import read_records
from redline.monitor.gpus import throttle_reasons

SOURCE = Path(__file__).with_name("fake_nvml.c")
GIB = 2**30
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, LOST, UNKNOWN = 3, 4, 9, 15, 999

# a process of its own: a library is loaded once, and its search path is read when a process starts
PRELUDE = """
import ctypes, json, sys
from redline.monitor.gpus import open_gpus

now_s = 0.0

def say(value):
    print(json.dumps(value))

def fail(gpu, call, code):
    fake.fake_fail(gpu, call.encode(), code)

def calls(gpu, call):
    return fake.fake_calls(gpu, call.encode())

def sample_at(time_s):
    global now_s
    now_s = time_s
    rows, events = gpus.sample()
    say([rows, [[event["event"], event["gpu"], event["message"]] for event in events]])
    return rows
"""
OPEN = """
fake = ctypes.CDLL("libnvidia-ml.so.1")
gpus, why = open_gpus(clock=lambda: now_s)
"""


def build_library(folder: Path, *options: str) -> Path:
    target = folder / "libnvidia-ml.so.1"
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", *options, "-shared", "-fPIC")
    command = ["gcc", *flags, "-o", str(target), str(SOURCE)]
    try:
        built = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.fail("these tests compile a small C library: install gcc (apt-get install gcc libc6-dev)")
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


def run(folder: Path | None, code: str, *args: str) -> list[Any]:
    """Return what a program says that finds its libraries in `folder`."""
    variables = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    if folder:
        variables["LD_LIBRARY_PATH"] = str(folder)
    command = [sys.executable, "-W", "error", "-c", PRELUDE + code, *args]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


FIRST = {
    "index": 0,
    "name": "Fake A100",
    "utilisation_percent": 97,
    "memory_controller_percent": 41,
    "memory_used_bytes": 30 * GIB,
    "memory_total_bytes": 40 * GIB,
    "power_w": 251.5,
    "temperature_c": 71,
    "fan_percent": 55,
    "clock_sm_mhz": 1400,
    "clock_memory_mhz": 1593,
    "throttle_reasons": ["sw_power_cap", "sw_thermal_slowdown"],
    "processes": [{"pid": 100, "memory_bytes": 20 * GIB}, {"pid": 200, "memory_bytes": 5 * GIB}, {"pid": 300}],
}
SECOND = {
    "index": 1,
    "name": "Fake T4",
    "utilisation_percent": 3,
    "memory_controller_percent": 1,
    "memory_used_bytes": 2 * GIB,
    "memory_total_bytes": 16 * GIB,
    "power_w": 9.25,
    "temperature_c": 34,
    "fan_percent": 0,
    "clock_sm_mhz": 305,
    "clock_memory_mhz": 405,
    "throttle_reasons": [],
    "processes": [{"pid": 100, "memory_bytes": 2 * GIB}, {"pid": 400}],
}


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def test_two_gpus_tell_all_their_values(library: Path) -> None:
    code = OPEN + "say([gpus.names, why]); sample_at(0); gpus.close(); say(fake.fake_starts())"
    opened, sampled, starts_after = run(library, code)
    assert opened == [["Fake A100", "Fake T4"], None]
    assert sampled == [[FIRST, SECOND], []]
    assert starts_after == 0


def test_an_old_driver_is_asked_by_its_old_calls(tmp_path: Path) -> None:
    (sampled,) = run(build_library(tmp_path, "-DOLD_DRIVER"), OPEN + "sample_at(0)")
    with_reserve = {"memory_used_bytes": 31 * GIB}, {"memory_used_bytes": 3 * GIB}
    assert sampled == [[FIRST | with_reserve[0], SECOND | with_reserve[1]], []]


@pytest.mark.parametrize(("driver", "asked"), [("535.54.03", [0, 2]), ("535.154.05", [2, 0])])
def test_drivers_that_list_processes_in_another_shape_are_asked_for_the_older_one(
    library: Path, driver: str, asked: list[int]
) -> None:
    # a list takes two calls: its length, then itself
    said = run(
        library,
        "fake = ctypes.CDLL('libnvidia-ml.so.1')\n"
        f"fake.fake_driver({driver.encode()!r})" + OPEN + "sample_at(0)\n"
        "say([calls(0, f'nvmlDeviceGetComputeRunningProcesses_v{version}') for version in (3, 2)])",
    )
    assert said == [[[FIRST, SECOND], []], asked]


def test_a_field_that_a_gpu_does_not_have_is_absent_and_not_asked_again(library: Path) -> None:
    said = run(
        library,
        OPEN + f"fail(1, 'nvmlDeviceGetFanSpeed', {NOT_SUPPORTED})\n"
        "sample_at(0); sample_at(1); say([calls(gpu, 'nvmlDeviceGetFanSpeed') for gpu in (0, 1)])",
    )
    expected = [[FIRST, without(SECOND, "fan_percent")], []]
    assert said == [expected, expected, [2, 1]]


def test_a_field_that_is_not_permitted_is_absent_and_said_once(library: Path) -> None:
    said = run(
        library,
        OPEN
        + f"""
def forbid():
    for call in ("ComputeRunningProcesses_v3", "GraphicsRunningProcesses_v3", "PowerUsage"):
        fail(0, "nvmlDeviceGet" + call, {NO_PERMISSION})
forbid(); sample_at(0); sample_at(1)
say(calls(0, "nvmlDeviceGetPowerUsage"))
fail(0, "*", {LOST}); sample_at(2)
fake.fake_heal(); forbid(); sample_at(12)
""",
    )
    rows = [without(FIRST, "power_w", "processes"), SECOND]
    message = "GPU 0 (Fake A100) does not permit this user to read: power, compute processes, graphics processes"
    assert said[:3] == [[rows, [["gpu-warning", 0, message]]], [rows, []], 1]
    assert said[4] == [rows, [["gpu-back", 0, "GPU 0 (Fake A100) answers again"]]]


def test_one_list_of_processes_is_enough(library: Path) -> None:
    code = OPEN + f"fail(1, 'nvmlDeviceGetComputeRunningProcesses_v3', {NOT_SUPPORTED}); sample_at(0)"
    ((rows, _),) = run(library, code)
    assert rows[1]["processes"] == [{"pid": 400, "memory_bytes": GIB}]


@pytest.mark.parametrize(
    ("code", "words"), [(LOST, "GPU is lost"), (UNKNOWN, "Unknown Error"), (2, "Invalid Argument")]
)
def test_a_lost_gpu_is_one_event_and_its_return_another(library: Path, code: int, words: str) -> None:
    said = run(
        library,
        OPEN
        + f"""
sample_at(100); fail(1, "*", {code})
for time_s in (101, 102, 110.9, 111, 112): sample_at(time_s)
say(calls(1, "nvmlDeviceGetHandleByIndex_v2"))
fake.fake_heal()
for time_s in (113, 120.9, 121, 122): sample_at(time_s)
""",
    )
    lost = ["gpu-lost", 1, f"GPU 1 (Fake T4) no longer answers: {words}"]
    back = ["gpu-back", 1, "GPU 1 (Fake T4) answers again"]
    both, one = [[FIRST, SECOND], []], [[FIRST], []]
    assert said[:2] == [both, [[FIRST], [lost]]]
    assert said[2:6] == [one] * 4
    assert said[6] == 2  # when it was opened, and at 111 s
    assert said[7:] == [one, one, [[FIRST, SECOND], [back]], both]


@pytest.mark.parametrize("code", [LOST, DRIVER_NOT_LOADED])
def test_one_answer_that_a_gpu_is_lost_is_enough(library: Path, code: int) -> None:
    said = run(library, OPEN + f"fail(0, 'nvmlDeviceGetFanSpeed', {code}); sample_at(0)")
    assert said[0][0] == [SECOND]
    assert said[0][1][0][:2] == ["gpu-lost", 0]


def test_one_unknown_error_is_a_missing_value_and_no_lost_gpu(library: Path) -> None:
    code = OPEN + f"fail(0, 'nvmlDeviceGetFanSpeed', {UNKNOWN}); sample_at(0); fake.fake_heal(); sample_at(1)"
    assert run(library, code) == [[[without(FIRST, "fan_percent"), SECOND], []], [[FIRST, SECOND], []]]


def test_a_driver_that_goes_loses_every_gpu_until_it_is_started_anew(library: Path) -> None:
    said = run(
        library,
        OPEN
        + f"""
fake.fake_unload()
for gpu in (-1, 0, 1): fail(gpu, "*", {DRIVER_NOT_LOADED})
for time_s in (0, 1, 10, 19): sample_at(time_s)
fake.fake_heal(); fake.fake_swap()
sample_at(20); sample_at(21)
gpus.close()
""",
    )
    lost, *none, back, after = said
    messages = [
        f"GPU {index} (Fake {name}) no longer answers: Driver Not Loaded" for index, name in enumerate(("A100", "T4"))
    ]
    assert lost == [[], [["gpu-lost", index, message] for index, message in enumerate(messages)]]
    assert none == [[[], []]] * 3
    # the new driver counts the GPUs the other way round: each keeps the index that it began with
    assert back[0] == [FIRST, SECOND]
    assert [event[:2] for event in back[1]] == [["gpu-back", 0], ["gpu-back", 1]]
    assert after == [[FIRST, SECOND], []]


def test_a_gpu_that_cannot_be_opened_is_said_once_and_comes_when_it_can(library: Path) -> None:
    said = run(
        library,
        "fake = ctypes.CDLL('libnvidia-ml.so.1')\n"
        f"fail(0, 'nvmlDeviceGetHandleByIndex_v2', {NO_PERMISSION})" + OPEN + "say(gpus.names)\n"
        "sample_at(0); sample_at(10); fake.fake_heal(); sample_at(20); say(gpus.names)",
    )
    warning = ["gpu-warning", 0, "GPU 0 cannot be opened: Insufficient Permissions"]
    assert said[:3] == [["unknown", "Fake T4"], [[SECOND], [warning]], [[SECOND], []]]
    assert said[3:] == [
        [[FIRST, SECOND], [["gpu-back", 0, "GPU 0 (Fake A100) answers again"]]],
        ["Fake A100", "Fake T4"],
    ]


@pytest.mark.parametrize(
    ("gpu", "call", "why"),
    [
        (-1, "nvmlInitWithFlags", "NVML does not start: Driver Not Loaded"),
        (-1, "nvmlDeviceGetCount_v2", "the GPUs cannot be counted: Driver Not Loaded"),
        (
            -1,
            "nvmlDeviceGetHandleByIndex_v2",
            "GPU 0 cannot be opened: Driver Not Loaded; GPU 1 cannot be opened: Driver",
        ),
    ],
)
def test_a_machine_whose_driver_is_not_loaded_has_no_gpus(library: Path, gpu: int, call: str, why: str) -> None:
    said = run(
        library,
        "fake = ctypes.CDLL('libnvidia-ml.so.1')\n"
        f"fail({gpu}, {call!r}, {DRIVER_NOT_LOADED})" + OPEN + "say([gpus is None, why, fake.fake_starts()])",
    )
    assert [said[0][0], said[0][1][: len(why)], said[0][2]] == [True, why, 0]


def test_whatever_nvml_answers_sampling_goes_on(library: Path) -> None:
    said = run(
        library,
        OPEN
        + """
bad_name = bytes([0xff, 0xfe])  # held: the library keeps the pointer
fake.fake_name(0, bad_name)
names = ["Name", "UUID", "HandleByIndex_v2", "UtilizationRates", "MemoryInfo_v2", "PowerUsage", "TemperatureV"]
names += ["FanSpeed", "ClockInfo", "CurrentClocksEventReasons", "ComputeRunningProcesses_v3"]
for code in [*range(1, 31), 999, 12345, -1]:
    for call in ["*", *("nvmlDeviceGet" + name for name in names)]:
        for gpu in (-1, 0):
            gpus, why = open_gpus(clock=lambda: now_s)
            fail(gpu, call, code)
            for _ in range(2):
                now_s += 11
                rows, events = gpus.sample()
                assert all(isinstance(event["message"], str) for event in events)
                assert [row["index"] for row in rows][-1:] == [1], (code, call, gpu)
            gpus.close()
            late, why = open_gpus()
            assert (late is None) == (why is not None)
            if late:
                late.sample()
            fake.fake_heal()
gpus, why = open_gpus()
say(gpus.names)
""",
    )
    assert said == [["unknown", "Fake T4"]]


def test_a_value_that_nvml_marks_as_not_available_is_absent(library: Path) -> None:
    code = "import pynvml\npynvml.nvmlDeviceGetPowerUsage = pynvml.nvmlDeviceGetFanSpeed = lambda gpu: 2**32 - 1"
    ((rows, _),) = run(library, code + OPEN + "sample_at(0)")
    assert rows == [without(row, "power_w", "fan_percent") for row in (FIRST, SECOND)]


def test_a_machine_without_the_library_has_no_gpus() -> None:
    found, is_none, why = run(
        None,
        """
try:
    found = bool(ctypes.CDLL("libnvidia-ml.so.1"))
except OSError:
    found = False
gpus, why = open_gpus()
for value in (found, gpus is None, why): say(value)
""",
    )
    assert found or (is_none, why) == (True, "no NVIDIA driver: its library NVML cannot be loaded")


def test_a_library_that_cannot_be_loaded_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    said = run(tmp_path, "gpus, why = open_gpus(); say([gpus is None, why])")
    assert said == [[True, "no NVIDIA driver: its library NVML cannot be loaded"]]


def test_the_probe_loads_nvml_only_when_it_is_opened() -> None:
    said = run(
        None,
        "say('pynvml' in sys.modules)\n"
        "sys.modules['pynvml'] = None\n"
        "gpus, why = open_gpus(); say([gpus is None, why[:35]])",
    )
    assert said == [False, [True, "nvidia-ml-py cannot be imported: im"]]


def test_throttle_reasons_are_named_by_their_bits() -> None:
    assert throttle_reasons(0) == []
    assert throttle_reasons(0x1) == []  # idle
    assert throttle_reasons(0x1 | 0x4 | 0x8) == ["sw_power_cap", "hw_slowdown"]
    assert throttle_reasons(0x400 | 0x8000) == ["reliability", "bit_15"]


RECORD = """
import os, pathlib
from redline.monitor.sampling import HardwareRecorder

fake = ctypes.CDLL("libnvidia-ml.so.1")
out = pathlib.Path(sys.argv[1])
recording = HardwareRecorder(os.getpid(), out, hz=20.0, say=say)
recording.take()
fail(1, "*", 15)
recording.take()
recording.finish("enough")
"""


def test_a_recording_holds_both_gpus_and_the_loss_of_one(library: Path, tmp_path: Path) -> None:
    lost, stop = run(library, RECORD, str(tmp_path))
    assert (lost["event"], lost["gpu"]) == ("gpu-lost", 1)
    assert stop["event"] == "monitor-stop"
    before, after = read_records(tmp_path / "hardware.jsonl")
    assert before["gpus"] == [FIRST, SECOND]
    assert after["gpus"] == [FIRST]


def test_a_recording_without_a_driver_has_no_gpus_and_says_why(tmp_path: Path) -> None:
    code = RECORD.replace('fake = ctypes.CDLL("libnvidia-ml.so.1")', "").replace('fail(1, "*", 15)', "")
    said = run(None, code.replace("recording.take()", "say(recording.facts()); recording.take()", 1), str(tmp_path))
    if not said[0]["gpus"]:  # else this machine has a driver
        assert said[0]["absent"]["gpus"]
        assert all("gpus" not in row for row in read_records(tmp_path / "hardware.jsonl"))
