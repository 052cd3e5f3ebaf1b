"""Reads each NVIDIA GPU through NVML. Unknown values are absent; nothing here fails."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from redline.jsonl import Row

NOT_AVAILABLE = (2**32 - 1, 2**64 - 1)  # in place of a value
RETRY_S = 10.0  # between searches for a lost GPU, which can wake the driver

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

# NVML's return codes, as its header numbers them
NO_PERMISSION = 4
LIBRARY_NOT_FOUND = 12
OUTDATED_CALL = frozenset({13, 25, 26})  # function not found, struct version mismatch, deprecated
UNSUPPORTED = OUTDATED_CALL | {3}
GPU_LOST = frozenset({15, 16, 28})  # fell off the bus, needs a reset, not found
DRIVER_LOST = frozenset({1, 9, 18})  # not started, not loaded, replaced by another version
NOT_YET = frozenset({19, 21, 27})  # in use, no data, not ready


def gpu_readings(nvml: Any) -> dict[str, Ask]:
    """Return the readings of a GPU by name; each returns columns of the row."""
    memory = _newest(
        # excludes the driver's own memory, as nvidia-smi does
        lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2),
        nvml.nvmlDeviceGetMemoryInfo,
    )
    temperature_c = _newest(
        lambda gpu: nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU),
        lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    )
    reasons = _newest(nvml.nvmlDeviceGetCurrentClocksEventReasons, nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    driver = ""
    with suppress(Exception):
        driver = nvml.nvmlSystemGetDriverVersion()
    # these drivers fill a longer struct of the same version: all processes but the first are garbage
    versions = ("v2",) if driver.startswith(("535.43.", "535.54.", "535.86.")) else ("v3", "v2")
    compute, graphics = (
        _newest(*(getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_{version}") for version in versions))
        for kind in ("Compute", "Graphics")
    )

    def attributes(ask: Ask, **columns: str) -> Ask:
        """Return a reading whose columns are attributes of NVML's answer."""

        def read(gpu: Any) -> Row:
            answer = ask(gpu)
            return {column: getattr(answer, name) for column, name in columns.items()}

        return read

    rates = {"utilisation_percent": "gpu", "memory_controller_percent": "memory"}
    return {
        "utilisation": attributes(nvml.nvmlDeviceGetUtilizationRates, **rates),
        "memory": attributes(memory, memory_used_bytes="used", memory_total_bytes="total"),
        "power": lambda gpu: {"power_w": _watts(nvml.nvmlDeviceGetPowerUsage(gpu))},
        "temperature": lambda gpu: {"temperature_c": temperature_c(gpu)},
        "fan": lambda gpu: {"fan_percent": nvml.nvmlDeviceGetFanSpeed(gpu)},
        "SM clock": lambda gpu: {"clock_sm_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)},
        "memory clock": lambda gpu: {"clock_memory_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)},
        "throttle reasons": lambda gpu: {"throttle_reasons": throttle_reasons(reasons(gpu))},
        "compute processes": lambda gpu: {"compute_processes": compute(gpu)},
        "graphics processes": lambda gpu: {"graphics_processes": graphics(gpu)},
    }


def _newest(*calls: Ask) -> Ask:
    """Return a call that uses the newest of `calls` that the driver supports."""
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
    """Return the reasons of lowered clocks, except idling; an unknown bit is named by its number."""
    bits = (bit for bit in range(1, mask.bit_length()) if mask >> bit & 1)
    return [CLOCK_REASONS[bit] if bit < len(CLOCK_REASONS) else f"bit_{bit}" for bit in bits]


def _by_pid(processes: Iterable[Any]) -> list[Row]:
    """Return a row per process, with its memory where known."""
    told_bytes: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for process in processes:
        told = told_bytes[process.pid][process.gpuInstanceId, process.computeInstanceId]
        if process.usedGpuMemory is not None:
            told.append(process.usedGpuMemory)
    rows: list[Row] = []
    for pid, instances in sorted(told_bytes.items()):
        # a process in both lists counts once; slices of a divided GPU add up
        is_known = all(instances.values())
        rows.append({"pid": pid} | ({"memory_bytes": sum(map(max, instances.values()))} if is_known else {}))
    return rows


def _watts(milliwatts: int) -> float:
    return milliwatts if milliwatts in NOT_AVAILABLE else milliwatts / 1_000


def error_code(error: Exception) -> int | None:
    """Return the NVML code of an error, if it has one."""
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else None


@dataclass
class Gpu:
    """The state of one GPU."""

    index: int
    handle: Any = None  # None while it is lost
    name: str | None = None
    uuid: str | None = None
    refused: set[str] = field(default_factory=set)  # unsupported or forbidden readings, not tried again
    warned: set[str] = field(default_factory=set)

    def event(self, kind: str, what: str) -> Row:
        """Return an event: gpu-lost, gpu-back or gpu-warning."""
        title = f"GPU {self.index}" + (f" ({self.name})" if self.name else "")
        return {"event": kind, "gpu": self.index, "message": f"{title} {what}"}


class GpuLostError(Exception):
    """A GPU, or the driver of all, no longer answers."""


def open_gpus(clock: Callable[[], float] = time.monotonic) -> tuple[Gpus | None, str | None]:
    """Return the machine's GPUs, or None and the reason; `clock` paces searches for lost GPUs."""
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
    why = "; ".join(event["message"] for event in gpus.sample()[1]) or "the NVIDIA driver has no GPU"
    gpus.close()
    return None, why


class Gpus:
    """The GPUs that NVML counted at the start; each keeps its index."""

    def __init__(self, nvml: Any, clock: Callable[[], float]) -> None:
        self._nvml, self._clock = nvml, clock
        self._retry_s = clock() + RETRY_S
        self._readings = gpu_readings(nvml)
        self._unsaid: list[Row] = []
        self._gpus: list[Gpu] = []
        try:
            self._gpus = [Gpu(index) for index in range(nvml.nvmlDeviceGetCount())]
        except Exception as error:
            message = f"the GPUs cannot be counted: {_text(error)}"
            self._unsaid.append({"event": "gpu-lost", "gpu": 0, "message": message})
        for gpu in self._gpus:
            if (problem := self._find(gpu)) is not None:
                kind = "gpu-warning" if error_code(problem) == NO_PERMISSION else "gpu-lost"
                self._unsaid.append(gpu.event(kind, f"cannot be opened: {_text(problem)}"))

    @property
    def names(self) -> list[str]:
        """The GPUs' names by index."""
        return [gpu.name or "unknown" for gpu in self._gpus]

    @property
    def any_alive(self) -> bool:
        """Whether at least one GPU answered the last time."""
        return any(gpu.handle is not None for gpu in self._gpus)

    def sample(self) -> tuple[list[Row], list[Row]]:
        """Return a row of every answering GPU, and the events since the last sample."""
        now_s = self._clock()
        events, self._unsaid = self._unsaid, []
        rows = []
        retry_due = now_s >= self._retry_s and any(gpu.handle is None for gpu in self._gpus)
        if retry_due:
            self._retry_s = now_s + RETRY_S
            if not self.any_alive:  # a reloaded driver needs a new session
                self.close()
                with suppress(Exception):
                    self._nvml.nvmlInit()
        for gpu in self._gpus:
            was_lost = gpu.handle is None
            if was_lost and not (retry_due and self._find(gpu) is None):
                continue
            try:
                row, warnings = self._read(gpu)
            except GpuLostError as error:
                gpu.handle = None
                if not was_lost:
                    self._retry_s = now_s + RETRY_S
                    events.append(gpu.event("gpu-lost", f"no longer answers: {error}"))
                continue
            if was_lost:
                events.append(gpu.event("gpu-back", "answers again"))
            rows.append(row)
            events.extend(warnings)
        return rows, events

    def close(self) -> None:
        """Leave NVML."""
        with suppress(Exception):
            self._nvml.nvmlShutdown()

    def _find(self, gpu: Gpu) -> Exception | None:
        """Open a GPU or return why not; after a restart of the driver its index may differ."""
        problem: Exception | None = None
        for index in range(len(self._gpus)) if gpu.uuid else [gpu.index]:
            try:  # searching by UUID would fail while any other GPU is lost
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                if gpu.uuid and gpu.uuid != self._nvml.nvmlDeviceGetUUID(handle):
                    continue
            except Exception as error:
                problem = error
                continue
            gpu.handle = handle
            gpu.refused.clear()  # what failed before may work now
            with suppress(Exception):
                gpu.name = gpu.name or self._nvml.nvmlDeviceGetName(handle)
            with suppress(Exception):
                gpu.uuid = gpu.uuid or self._nvml.nvmlDeviceGetUUID(handle)
            return None
        return problem or LookupError(f"no GPU has the UUID {gpu.uuid}")

    def _read(self, gpu: Gpu) -> tuple[Row, list[Row]]:
        """Return a GPU's row, and a warning if some readings are forbidden."""
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
        if doubt and not is_alive:  # healthy cards may answer "unknown error" for their fan
            raise GpuLostError(doubt)
        gpu.warned.update(forbidden)
        lists = [values.pop(name) for name in ("compute_processes", "graphics_processes") if name in values]
        if lists:
            values["processes"] = _by_pid(chain(*lists))
        row: Row = {"index": gpu.index} | ({"name": gpu.name} if gpu.name else {})
        row |= {name: value for name, value in values.items() if value not in NOT_AVAILABLE}
        warning = gpu.event("gpu-warning", f"does not permit this user to read: {', '.join(forbidden)}")
        return row, [warning] if forbidden else []


def _text(error: Exception) -> str:
    try:
        return str(error) or type(error).__name__  # asks the driver's library for the text
    except Exception:
        return type(error).__name__
