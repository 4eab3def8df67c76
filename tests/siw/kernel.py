"""The guest's kernel: Debian's, with siw built for it twice, kept between runs.

Debian's kernel packages come without siw (`# CONFIG_RDMA_SIW is not set`), so it is built from the kernel's source
package against the headers of the same version: once as it is (`stock`), and once with its compile-time constants as
module parameters (`tuned`), which changes nothing else.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

META = "linux-image-amd64"  # names the current kernel image
SIW = "drivers/infiniband/sw/siw"
# The modules that the guest loads, beside what they depend on.
MODULES = """virtio_pci virtio_net virtio_console virtio_rng 9pnet_virtio 9p crc32c_generic crc32c_intel libcrc32c
             sch_netem sch_ingress cls_matchall act_mirred ifb
             ib_core iw_cm rdma_cm rdma_ucm ib_uverbs""".split()
# The constants of siw: file, line as it stands, line with a parameter.
BOOLS = "try_gso|mpa_crc_required|mpa_crc_strict|siw_tcp_nagle|peer_to_peer|zcopy_tx"
TUNING = [
    ("siw.h", rf"^extern const bool ({BOOLS});", r"extern bool \1;"),
    ("siw_main.c", rf"^const bool ({BOOLS})( = true)?;", r"bool \1\2;\nmodule_param(\1, bool, 0644);"),
    ("siw_main.c", r"^u_char mpa_version = MPA_REVISION_2;", r"\g<0>\nmodule_param(mpa_version, byte, 0644);"),
    # In network order, as siw keeps it.
    ("siw_cm.c", r"^static __be16 rtr_type = .*;", r"\g<0>\nmodule_param(rtr_type, ushort, 0644);"),
]


class Unavailable(Exception):
    """The guest cannot be had on this machine; says why."""


def run(*command, cwd=None, log=None):
    """Runs a command; its words are the reason when it fails."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable(f"{command[0]}: {error.strerror}") from error
    if log:
        log.write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Unavailable(f"{' '.join(command[:3])}: {said[-1] if said else f'exit status {done.returncode}'}")
    return done.stdout


def pipe(*commands):
    """Runs commands, each reading from the one before."""
    running = []
    for command in commands:
        source = running[-1].stdout if running else None
        last = command is commands[-1]
        running.append(subprocess.Popen(command, stdin=source, stdout=None if last else subprocess.PIPE))
        if source:
            source.close()
    if any(process.wait() for process in reversed(running)):
        raise Unavailable(f"{commands[0][0]}: could not unpack {commands[0][-1]}")


def packages():
    """The kernel's packages with their versions, by what they are for."""
    image = re.search(r"Depends: (linux-image-\d\S+)", run("apt-cache", "depends", META))
    if not image:
        raise Unavailable(f"{META} names no kernel (run apt-get update)")
    release = image[1].removeprefix("linux-image-")
    series = re.match(r"\d+\.\d+", release)[0]
    names = {
        "image": image[1],
        "headers": f"linux-headers-{release}",
        "common": f"linux-headers-{release.removesuffix('-amd64')}-common",
        "kbuild": f"linux-kbuild-{series}",
        "source": f"linux-source-{series}",
    }
    version = re.search(r"Candidate: (\S+)", run("apt-cache", "policy", image[1]))
    if not version:
        raise Unavailable(f"{image[1]} has no candidate")
    return release, {role: f"{name}={version[1]}" for role, name in names.items()}


class Kernel:
    """A built kernel in the cache: `vmlinuz`, `modules/`, `siw-stock.ko`, `siw-tuned.ko`."""

    def __init__(self, folder, release, version):
        self.folder, self.release, self.version = folder, release, version

    @property
    def image(self):
        return self.folder / "vmlinuz"

    def modules(self):
        """The modules to load, in order."""
        return [self.folder / "modules" / name for name in (self.folder / "order").read_text().split()]


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "weft" / "siw-guest"


def get(cache):
    """The kernel from the cache, built into it when it is not there."""
    release, wanted = packages()
    version = wanted["image"].split("=")[1]
    inputs = Path(__file__).read_bytes() + " ".join(wanted.values()).encode()
    folder = cache / hashlib.sha256(inputs).hexdigest()[:16]
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as work:
            built = build(Path(work), release, wanted)
            # What an older version of the packages or of this file gave is of no further use.
            for old in cache.iterdir():
                if re.fullmatch(r"[0-9a-f]{16}", old.name):
                    shutil.rmtree(old, ignore_errors=True)
            try:
                built.rename(folder)
            except OSError:
                # Another run may have been here first.
                if not folder.exists():
                    raise
    return Kernel(folder, release, version)


def build(work, release, wanted):
    run("apt-get", "download", "-q", *wanted.values(), cwd=work)
    deb = {role: next(work.glob(f"{name.split('=')[0]}_*.deb")) for role, name in wanted.items()}
    result = work / "result"
    (result / "modules").mkdir(parents=True)
    run("dpkg", "-x", deb["image"], work / "image")
    shutil.copy(work / "image/boot" / f"vmlinuz-{release}", result / "vmlinuz")
    collect_modules(work / "image", release, result)
    for role in ("headers", "common", "kbuild"):
        run("dpkg", "-x", deb[role], work / "headers")
    unpack_siw(deb["source"], work)
    for variant in ("stock", "tuned"):
        build_siw(work, release, variant, result)
    return result


def collect_modules(image, release, result):
    run("/usr/sbin/depmod", "-b", image, release)
    order = []
    for module in MODULES:
        shown = run("/usr/sbin/modprobe", "-d", image, "-S", release, "--show-depends", module)
        for path in re.findall(r"^insmod (\S+)", shown, re.MULTILINE):
            if Path(path).name not in order:
                order.append(Path(path).name)
                shutil.copy(path, result / "modules")
    (result / "order").write_text("\n".join(order) + "\n", encoding="utf-8")


def unpack_siw(deb, work):
    name = re.match(r"[^_]+", deb.name)[0]
    pipe(
        ("dpkg", "--fsys-tarfile", str(deb)),
        ("tar", "--extract", "--to-stdout", f"./usr/src/{name}.tar.xz"),
        ("tar", "--extract", "--xz", "--directory", str(work), f"{name}/{SIW}"),
    )
    for variant in ("stock", "tuned"):
        shutil.copytree(work / name / SIW, work / variant)
    for file, line, replacement in TUNING:
        path = work / "tuned" / file
        text, count = re.subn(line, replacement, path.read_text(), flags=re.MULTILINE)
        if count == 0:
            raise Unavailable(f"siw's {file} has no line like {line}: this kernel's siw is another")
        path.write_text(text)


def build_siw(work, release, variant, result):
    usr = work / "headers/usr/src"
    headers = usr / f"linux-headers-{release}"
    # The package's makefile includes the common one by where it would be installed.
    makefile = headers / "Makefile"
    makefile.write_text(makefile.read_text().replace(" /usr/src/", f" {usr}/"))
    log = work / f"{variant}.log"
    run("make", "-C", headers, f"M={work / variant}", "CC=gcc", "CONFIG_RDMA_SIW=m", f"-j{os.cpu_count()}",
        "modules", log=log)
    run("strip", "--strip-debug", work / variant / "siw.ko")
    shutil.copy(work / variant / "siw.ko", result / f"siw-{variant}.ko")
