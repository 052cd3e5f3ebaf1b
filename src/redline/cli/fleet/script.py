"""Prints the script that trains a fleet on a Slurm cluster, where nothing supervises it."""

import sys
from pathlib import Path

from redline.cli.main import DONE
from redline.cli.output import Printing, command, print_json
from redline.fleet.engines.slurm import slurm_script
from redline.fleet.listing import Listing


def give_script(folder: Path, listing: Listing, flags: Printing) -> int:
    """Print the script on stdout, ready for `| sbatch`, and what to do with it on stderr."""
    script = slurm_script(folder, listing)
    if flags.json:
        print_json({"folder": str(folder), "script": script})
        return DONE
    print(script, end="")
    look = command("fleet", "status", folder)
    print(f"redline: give this script to sbatch (… | sbatch); see how it stands with: {look}", file=sys.stderr)
    return DONE
