"""What a GPU is asked in every sample, and how NVML's answers become the columns of its row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from typing import Any

from redline.records import Row

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


def gpu_readings(nvml: Any) -> dict[str, Ask]:
    """Return by name what is asked of a GPU in every sample; each answers with columns of its row."""
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
    """Return a call that uses the first of `calls` that the driver knows; they go from new to old."""
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
    """Return what holds the clocks down: idling does not, and a bit without a name is called by its number."""
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
        # who computes and draws is in both lists with the same memory; slices of a divided GPU add up
        is_known = all(instances.values())
        rows.append({"pid": pid} | ({"memory_bytes": sum(map(max, instances.values()))} if is_known else {}))
    return rows


def _available(columns: Row) -> Row:
    return {name: value for name, value in columns.items() if value not in NOT_AVAILABLE}


def error_code(error: Exception) -> int | None:
    """Return the number that NVML gave an error, if it is one of NVML's."""
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else None
