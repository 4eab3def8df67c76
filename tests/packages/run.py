#!/usr/bin/env python3
"""Packages: made of a build, installed as their users install them, and used.

    tests/packages/run.py --build FOLDER [--full] [--only REGEX] [--except REGEX]

FOLDER is what `make build` left (target/release). With --full they are also installed in clean systems that are made
for it, which takes minutes and a mirror of Debian's packages. A case that lacks a tool is skipped, with its reason;
one that fails runs once more, alone. Closes with `N passed, N failed, N skipped`.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "rig"))
import again  # noqa: E402
import ci  # noqa: E402, F401
import clean  # noqa: E402, F401
import confinement  # noqa: E402, F401
import containers  # noqa: E402, F401
import contents  # noqa: E402, F401
import debs  # noqa: E402, F401
import inside  # noqa: E402, F401
import installations  # noqa: E402, F401
import kubernetes  # noqa: E402, F401
import portable  # noqa: E402, F401
import releases  # noqa: E402, F401
import rpms  # noqa: E402, F401
import sources  # noqa: E402, F401
import wheels  # noqa: E402, F401
from bed import CASES, Bed, Failed, Skip  # noqa: E402


def play(bed, name):
    """How a case went, and why."""
    try:
        CASES[name][0](bed)
    except Skip as skip:
        return "skipped", str(skip)
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        return "failed", str(error)
    return "passed", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the folder with weft and its libraries")
    parser.add_argument("--full", action="store_true", help="the cases too that take minutes")
    parser.add_argument("--only", default="", help="cases whose name this finds")
    parser.add_argument("--except", dest="others", help="not those cases whose name this finds")
    args = parser.parse_args()
    bed = Bed(args.build)
    names = [name for name, (_, full) in CASES.items() if (args.full or not full) and re.search(args.only, name)]
    names = [name for name in names if not (args.others and re.search(args.others, name))]
    counts = again.play_each(names, lambda name: play(bed, name))
    bed.close()
    return counts.close()


if __name__ == "__main__":
    sys.exit(main())
