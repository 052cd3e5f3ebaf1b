"""`redline doctor`: machine, versions and settings for a bug report, on one page."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from redline.cli.main import DONE
from redline.cli.output import is_plain, print_facts, print_json
from redline.cli.parsing import Json, Plain, parse
from redline.files import free_bytes
from redline.runs.host import host_facts, version
from redline.units import size

OPTIONAL = ("tensorboard", "optuna", "av", "pygame-ce", "nvidia-ml-py", "stable-baselines3")
ENVIRONMENT = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class DoctorFlags:
    """Print what a bug report needs. Nothing is changed, and nothing is sent anywhere."""

    plain: Plain = False
    json: Json = False


def run(args: Sequence[str]) -> int:
    """Gather and print, and return the exit code."""
    flags = parse(DoctorFlags, args, prog="redline doctor")
    found = gather()
    if flags.json:
        print_json(found)
        return DONE
    host = found["host"]
    facts = [
        ("system", host["system"]),
        ("processor", f"{host['cpu_model']}, {host['usable_cores']} of {host['logical_cores']} cores usable"),
        ("torch's vectors", found["cpu_capability"]),
        ("memory", f"{size(host['memory_bytes'])}, {size(found['memory_free_bytes'])} free"),
        ("disk", f"{size(found['disk_free_bytes'])} free here"),
        ("GPUs", ", ".join(found["gpus"]) or "none that torch can use"),
        ("commit", found["commit"] or "an installed package"),
        ("versions", ", ".join(f"{name} {number}" for name, number in found["versions"].items() if number)),
        ("extras", ", ".join(f"{name} {number or '–'}" for name, number in found["extras"].items())),
        ("environment", ", ".join(f"{name}={value}" for name, value in found["environment"].items()) or "nothing set"),
    ]
    print_facts(facts, plain=is_plain(plain=flags.plain))
    return DONE


def gather() -> dict[str, Any]:
    """Return the machine, the versions, and what else decides how Redline runs here."""
    facts = {key: value for key, value in host_facts().items() if key != "command"}
    return {
        **facts,
        "extras": {name: version(name) for name in OPTIONAL},
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "gpus": [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())],
        "memory_free_bytes": psutil.virtual_memory().available,
        "disk_free_bytes": free_bytes(Path.cwd()),
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }
