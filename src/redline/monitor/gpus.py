"""What each NVIDIA GPU does, read through NVML. A value that a GPU does not tell is absent; nothing here fails."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from redline.jsonl import Row

OUTDATED_CALL = frozenset({13, 25, 26})  # NVML's codes: function not found, struct version mismatch, deprecated
NOT_AVAILABLE = (2**32 - 1, 2**64 - 1)

CLOCK_REASONS = (  # by bit
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
    "board_limit",
    "reliability",
)

Ask = Callable[[Any], Any]  # of a device handle
RETRY_S = 10.0  # between searches for a lost GPU, which may wake the driver

# NVML's return codes, as its header numbers them
NO_PERMISSION = 4
LIBRARY_NOT_FOUND = 12
UNSUPPORTED = OUTDATED_CALL | {3}
GPU_LOST = frozenset({15, 16, 28})  # fell off the bus, needs a reset, not found
DRIVER_LOST = frozenset({1, 9, 18})  # not started, not loaded, replaced by another version
NOT_YET = frozenset({19, 21, 27})  # in use, no data, not ready


def gpu_readings(nvml: Any) -> dict[str, Ask]:
    """Return the readings of a GPU by name; each gives columns of its row."""
    memory = _newest(
        # leaves out what the driver keeps for itself, as nvidia-smi does
        lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2),
        nvml.nvmlDeviceGetMemoryInfo,
    )
    temperature_c = _newest(
        lambda gpu: nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU),
        lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    )
    reasons = _newest(nvml.nvmlDeviceGetCurrentClocksEventReasons, nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    processes = _process_calls(nvml)

    def utilisation(gpu: Any) -> Row:
        rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
        return _available({"utilisation_percent": rates.gpu, "memory_controller_percent": rates.memory})

    def memory_bytes(gpu: Any) -> Row:
        info = memory(gpu)
        return _available({"memory_used_bytes": info.used, "memory_total_bytes": info.total})

    def power(gpu: Any) -> Row:
        known = _available({"power_mw": nvml.nvmlDeviceGetPowerUsage(gpu)})
        return {"power_w": known["power_mw"] / 1_000} if known else {}

    return {
        "utilisation": utilisation,
        "memory": memory_bytes,
        "power": power,
        "temperature": lambda gpu: _available({"temperature_c": temperature_c(gpu)}),
        "fan": lambda gpu: _available({"fan_percent": nvml.nvmlDeviceGetFanSpeed(gpu)}),
        "SM clock": lambda gpu: _available({"clock_sm_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)}),
        "memory clock": lambda gpu: _available(
            {"clock_memory_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)}
        ),
        "throttle reasons": lambda gpu: {"throttle_reasons": throttle_reasons(reasons(gpu))},
        "compute processes": lambda gpu: {"compute_processes": processes["Compute"](gpu)},
        "graphics processes": lambda gpu: {"graphics_processes": processes["Graphics"](gpu)},
    }


def _process_calls(nvml: Any) -> dict[str, Ask]:
    """Return the calls that list a GPU's processes, by kind."""
    driver = ""
    with suppress(Exception):
        driver = nvml.nvmlSystemGetDriverVersion()
    # these drivers fill a longer struct under the same version number: every process but the first is garbage
    versions = ("v2",) if driver.startswith(("535.43.", "535.54.", "535.86.")) else ("v3", "v2")

    return {
        kind: _newest(*(getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_{version}") for version in versions))
        for kind in ("Compute", "Graphics")
    }


def _newest(*calls: Ask) -> Ask:
    """Return a call that uses the first of `calls`, given from new to old, that the driver knows."""
    choices = list(calls)

    def ask(gpu: Any) -> Any:
        while len(choices) > 1:
            try:
                return choices[0](gpu)
            except Exception as error:
                if error_code(error) not in OUTDATED_CALL:
                    raise
                choices.pop(0)
        return choices[0](gpu)

    return ask


def throttle_reasons(mask: int) -> list[str]:
    """Return what holds the clocks down, without idling; an unknown bit is called by its number."""
    bits = (bit for bit in range(1, mask.bit_length()) if mask >> bit & 1)
    return [CLOCK_REASONS[bit] if bit < len(CLOCK_REASONS) else f"bit_{bit}" for bit in bits]


def merge_processes(values: Row) -> Row:
    """Return the columns with one list of processes, each with its memory where NVML tells it."""
    lists = [values.pop(name) for name in ("compute_processes", "graphics_processes") if name in values]
    return values | {"processes": _by_pid(chain(*lists))} if lists else values


def _by_pid(processes: Iterable[Any]) -> list[Row]:
    told_bytes: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for process in processes:
        told = told_bytes[process.pid][process.gpuInstanceId, process.computeInstanceId]
        if process.usedGpuMemory is not None:
            told.append(process.usedGpuMemory)
    rows: list[Row] = []
    for pid, instances in sorted(told_bytes.items()):
        # a process that computes and draws is in both lists with the same memory; slices of a divided GPU add up
        is_known = all(instances.values())
        rows.append({"pid": pid} | ({"memory_bytes": sum(map(max, instances.values()))} if is_known else {}))
    return rows


def _available(columns: Row) -> Row:
    return {name: value for name, value in columns.items() if value not in NOT_AVAILABLE}


def error_code(error: Exception) -> int | None:
    """Return the number that NVML gave an error, if it is one of NVML's."""
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else None


@dataclass(frozen=True)
class GpuEvent:
    """A change of a GPU between two samples."""

    name: str  # gpu-lost, gpu-back, gpu-warning
    index: int
    message: str


@dataclass
class Gpu:
    """What is remembered of one GPU."""

    index: int
    handle: Any = None  # None while it is lost
    name: str | None = None
    uuid: str | None = None
    refused: set[str] = field(default_factory=set)  # readings it lacks or forbids: not tried again
    warned: set[str] = field(default_factory=set)

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"GPU {self.index}" + (f" ({self.name})" if self.name else "")


class GpuLostError(Exception):
    """A GPU, or the driver of all, no longer answers."""


def open_gpus(clock: Callable[[], float] = time.monotonic) -> tuple[Gpus | None, str | None]:
    """Return the machine's GPUs, or None and the reason; `clock` tells when to search for lost ones."""
    try:
        import pynvml  # noqa: PLC0415  a machine without NVML never needs it
    except Exception as error:  # a broken installation can raise anything
        return None, f"nvidia-ml-py cannot be imported: {_text(error)}"
    try:
        pynvml.nvmlInit()
        gpus = Gpus(pynvml, clock)
    except Exception as error:
        if error_code(error) == LIBRARY_NOT_FOUND:
            return None, "no NVIDIA driver: its library NVML cannot be loaded"
        return None, f"NVML does not start: {_text(error)}"
    if gpus.any_alive:
        return gpus, None
    why = "; ".join(event.message for event in gpus.sample()[1]) or "the NVIDIA driver has no GPU"
    gpus.close()
    return None, why


class Gpus:
    """The GPUs that NVML counted when it was opened; an index stays with its GPU."""

    def __init__(self, nvml: Any, clock: Callable[[], float]) -> None:
        self._nvml, self._clock = nvml, clock
        self._is_started, self._is_closed = True, False
        self._retry_s = clock() + RETRY_S
        self._readings = gpu_readings(nvml)
        self._unsaid: list[GpuEvent] = []
        count = 0
        try:
            count = nvml.nvmlDeviceGetCount()
        except Exception as error:
            self._unsaid.append(GpuEvent("gpu-lost", 0, f"the GPUs cannot be counted: {_text(error)}"))
        self._gpus = [Gpu(index) for index in range(count)]
        for gpu in self._gpus:
            self._meet(gpu)

    @property
    def names(self) -> list[str]:
        """The GPUs' names by index."""
        return [gpu.name or "unknown" for gpu in self._gpus]

    @property
    def any_alive(self) -> bool:
        """Whether at least one GPU answered last time."""
        return any(gpu.handle is not None for gpu in self._gpus)

    def sample(self) -> tuple[list[Row], list[GpuEvent]]:
        """Return a row of every GPU that answers, and the events since the last sample."""
        if self._is_closed:
            return [], []
        now_s = self._clock()
        events, self._unsaid = self._unsaid, []
        rows = []
        retry_due = now_s >= self._retry_s and self._is_any_lost()
        if retry_due:
            self._retry_s = now_s + RETRY_S
            if not self.any_alive:
                self._restart()
        for gpu in self._gpus:
            was_lost = gpu.handle is None
            if was_lost and not (retry_due and self._find(gpu)):
                continue
            try:
                row, warnings = self._read(gpu)
            except GpuLostError as error:
                gpu.handle = None
                if not was_lost:
                    self._retry_s = now_s + RETRY_S
                    events.append(GpuEvent("gpu-lost", gpu.index, f"{gpu.title} no longer answers: {error}"))
                continue
            if was_lost:
                events.append(GpuEvent("gpu-back", gpu.index, f"{gpu.title} answers again"))
            rows.append(row)
            events.extend(warnings)
        return rows, events

    def close(self) -> None:
        """Leave NVML; later samples are empty."""
        self._is_closed = True
        self._shut_down()

    def _is_any_lost(self) -> bool:
        return any(gpu.handle is None for gpu in self._gpus)

    def _meet(self, gpu: Gpu) -> None:
        try:
            gpu.handle = self._nvml.nvmlDeviceGetHandleByIndex(gpu.index)
        except Exception as error:
            name = "gpu-warning" if error_code(error) == NO_PERMISSION else "gpu-lost"
            self._unsaid.append(GpuEvent(name, gpu.index, f"{gpu.title} cannot be opened: {_text(error)}"))
            return
        self._identify(gpu)

    def _identify(self, gpu: Gpu) -> None:
        with suppress(Exception):
            gpu.name = gpu.name or self._nvml.nvmlDeviceGetName(gpu.handle)
        with suppress(Exception):
            gpu.uuid = gpu.uuid or self._nvml.nvmlDeviceGetUUID(gpu.handle)

    def _find(self, gpu: Gpu) -> bool:
        """Search for a lost GPU: after a restart of the driver it may have another index."""
        for index in range(len(self._gpus)) if gpu.uuid else [gpu.index]:
            # not by UUID: that search fails as long as any other GPU is lost
            with suppress(Exception):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                if not gpu.uuid or gpu.uuid == self._nvml.nvmlDeviceGetUUID(handle):
                    gpu.handle = handle
                    gpu.refused.clear()  # what it refused while it failed may work now
                    self._identify(gpu)
                    return True
        return False

    def _read(self, gpu: Gpu) -> tuple[Row, list[GpuEvent]]:
        """Return a GPU's row, and a warning if it forbids some readings."""
        values: Row = {}
        forbidden: list[str] = []
        is_alive, doubt = False, None
        for name, ask in self._readings.items():
            if name in gpu.refused:
                continue
            try:
                values |= ask(gpu.handle)
                is_alive = True
            except Exception as error:
                code = error_code(error)
                if code in GPU_LOST | DRIVER_LOST:
                    raise GpuLostError(_text(error)) from error
                if code in UNSUPPORTED or code == NO_PERMISSION:
                    gpu.refused.add(name)
                elif code not in NOT_YET:
                    doubt = doubt or _text(error)
                if code == NO_PERMISSION and name not in gpu.warned:
                    forbidden.append(name)
        if doubt and not is_alive:  # some healthy cards answer "unknown error" for their fan alone
            raise GpuLostError(doubt)
        gpu.warned.update(forbidden)
        message = f"{gpu.title} does not permit this user to read: {', '.join(forbidden)}"
        row: Row = {"index": gpu.index} | ({"name": gpu.name} if gpu.name else {}) | merge_processes(values)
        return row, [GpuEvent("gpu-warning", gpu.index, message)] if forbidden else []

    def _restart(self) -> None:
        """Start NVML anew: a reloaded driver does not answer to an old session."""
        self._shut_down()
        with suppress(Exception):
            self._nvml.nvmlInit()
            self._is_started = True

    def _shut_down(self) -> None:
        if self._is_started:
            self._is_started = False
            with suppress(Exception):
                self._nvml.nvmlShutdown()


def _text(error: Exception) -> str:
    try:
        return str(error) or type(error).__name__  # asks the driver's library for the words
    except Exception:
        return type(error).__name__
