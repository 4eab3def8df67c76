"""What tshark, the decoder that most people look at iWARP with, says of a capture."""

import re
import shutil
import subprocess

# Of a Send tshark guesses what program sent it. A short one it takes for RPC over RDMA, which it is not, and calls that
# protocol's part malformed.
GUESSES = ("rpcordma", "smb_direct", "nvme-rdma", "iser")


class Tally:
    """What was read over a run."""

    def __init__(self):
        self.program = shutil.which("tshark")
        self.captures = self.frames = self.malformed = 0

    def read(self, capture):
        """Has tshark read a capture; returns a complaint or None."""
        if not self.program:
            return None
        fields = self.fields(capture, "iwarp_mpa", "frame.number", "_ws.malformed")
        bad = [words[0] for words in fields if len(words) > 1 and words[1]]
        self.captures += 1
        self.frames += len(fields)
        self.malformed += len(bad)
        return f"tshark calls frame {bad[0]} of {capture.name} malformed" if bad else None

    def fields(self, capture, show, *names):
        command = [self.program, "-r", str(capture), "-Y", show, "-T", "fields"]
        command += [word for name in names for word in ("-e", name)]
        command += [word for guess in GUESSES for word in ("--disable-protocol", guess)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return [line.split("\t") for line in done.stdout.splitlines()]

    def words(self):
        """A sentence for the report."""
        if not self.captures:
            return "tshark is not installed: no capture was read by it."
        done = subprocess.run([self.program, "--version"], capture_output=True, text=True, check=False)
        version = re.search(r"\d+(\.\d+)+", done.stdout)
        return (f"tshark {version[0] if version else ''} read the {self.captures} captures of the run: {self.frames} frames with iWARP in them, "
                f"{self.malformed} malformed.")
