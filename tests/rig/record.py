"""The bench's record (eval/bench/schema), written by runners in Python: every sample, and nothing computed from others.

`weft bench report FILE` prints one. What the machine is, the built command itself says (`weft bench environment`)."""

import datetime
import json
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

SCHEMA, VERSION = "weft-bench", 1


@dataclass(frozen=True)
class Row:
    """What is measured on a path.

    `metric` is the key of the figure it is judged by, one of eval/bench/src/metric.rs. `what` says it to people; a row
    of the bench's own has its `workload` instead. `reference` names the stacks that others are compared with."""

    path: str
    name: str
    metric: str
    what: str = ""
    reference: tuple = ()
    workload: dict = None

    @property
    def id(self):
        return f"{self.path}/{self.name}"

    def empty(self):
        workload = self.workload or {"kind": "named", "name": self.name, "what": self.what}
        return {"id": self.id, "path": self.path, "workload": workload, "metric": self.metric,
                "reference": list(self.reference), "cells": []}


class Record:
    """One run. `weft` is the command; `seconds` of a cell and the `cores` of server and client where they are the same
    for all; `only` and `stacks` name what was asked for where that is not everything. Of two builds measured in turn,
    `turn` is the one whose samples are being taken and the number of the pair (pairs.py)."""

    def __init__(self, weft, repetitions, seconds=None, cores=None, only=(), stacks=()):
        self.weft = weft
        self.begun = time.monotonic()
        self.turn = None
        self.run = {
            "schema": SCHEMA, "version": VERSION, "started": now(), "finished": now(), "interrupted": True,
            "options": {"repetitions": repetitions, "cell_seconds": seconds, "cores": cores, "only": list(only),
                        "stacks": list(stacks)},
            "environment": self.ask()["environment"], "paths": [], "rows": [],
        }

    def ask(self, enter=()):
        """What the command says of the machine, and of the network that `enter` leads to."""
        command = [*enter, str(self.weft), "bench", "environment"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)

    def path(self, name, description, mtu=None, enter=None, skipped=None):
        """Enters a path. `enter` stands before a command that is to run at its server; None where no command of this
        machine can."""
        sysctls = {} if enter is None or skipped else self.ask(enter)["sysctls"]
        self.run["paths"].append({"name": name, "description": description, "mtu": mtu, "sysctls": sysctls,
                                  "skipped": skipped})

    def sample(self, row, stack, began, metrics=None, failure=None, commands=()):
        """Keeps what the programs, started at `began` on the monotonic clock, came to just now: metrics by their keys,
        or why there are none, with the programs' last lines."""
        cell = self.cell(row, stack)
        cell["commands"] = [spoken(command) for command in commands]
        number = self.turn[1] if self.turn else len(cell["samples"]) + 1
        sample = {"repetition": number, "at": round(began - self.begun, 3),
                  "took": round(time.monotonic() - began, 3)}
        if metrics is None:
            reason, *tail = str(failure).strip().splitlines() or ["it said nothing"]
            sample["failure"] = {"reason": reason[:400], "tail": tail[-8:]}
        else:
            sample["metrics"] = {key: float(value) for key, value in metrics.items()}
        cell["samples"].append(sample)

    def skip(self, row, stack, reason):
        """Says why a cell is not measured."""
        self.cell(row, stack)["skipped"] = str(reason)

    def cell(self, row, stack):
        entry = next((entry for entry in self.run["rows"] if entry["id"] == row.id), None)
        if entry is None:
            entry = row.empty()
            self.run["rows"].append(entry)
        build = self.turn and self.turn[0]
        found = cell_of(entry, stack, build)
        if found is None:
            found = {"stack": stack, "commands": [], "skipped": None, "samples": []}
            found |= {"build": build} if build else {}
            entry["cells"].append(found)
        return found

    def finish(self):
        """Says that the run came to its end; one that did not is *interrupted*."""
        self.run |= {"finished": now(), "interrupted": False}

    def write(self, file):
        Path(file).write_text(json.dumps(self.run, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read(file):
    """The run in a file; ValueError for what is no record."""
    run = json.loads(Path(file).read_text(encoding="utf-8"))
    if not isinstance(run, dict) or (run.get("schema"), run.get("version")) != (SCHEMA, VERSION):
        raise ValueError(f"{file} is not a {SCHEMA} record of version {VERSION}")
    return run


def row_of(run, row_id):
    """The row of that id, PATH/NAME; None where there is none."""
    return next((row for row in run["rows"] if row["id"] == row_id), None)


def cell_of(row, stack, build=None):
    """The cell of a stack, and of one build of it where there are two; None where there is none."""
    return next((cell for cell in row["cells"] if (cell["stack"], cell.get("build")) == (stack, build)), None)


def values(run, row_id, stack, key):
    """A metric of each good sample of a cell, in the order they were taken."""
    row = row_of(run, row_id)
    cell = row and cell_of(row, stack)
    samples = cell["samples"] if cell else []
    return [sample["metrics"][key] for sample in samples if key in sample.get("metrics", {})]


def median(run, row_id, stack, key):
    """The median of a metric; None where there is no good sample."""
    found = values(run, row_id, stack, key)
    return statistics.median(found) if found else None


def spoken(command):
    """A command in a line, its program and files without their folders: a record says nothing of whose machine it
    was."""
    return " ".join(Path(word).name if word.startswith("/") else word for word in map(str, command))


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
