"""The guest's kernel: Debian's, with siw built for it twice, kept between runs.

Debian's kernel packages come without siw (`# CONFIG_RDMA_SIW is not set`), so it is built from the kernel's source
package against the headers of the same version: once as it is (`stock`), and once with its compile-time constants as
module parameters (`tuned`), which changes nothing else.
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Choice:
    """A kernel that an index of the archive has whole."""

    release: str  # as `uname -r` says it
    version: str  # of the image; that of `kbuild` may be later
    packages: dict  # what they are for: NAME=VERSION


def choices(*options):
    """The kernels that the index has whole, newest first. It is the machine's own, unless options of apt name another.

    Debian puts out the signed image later than what else there is of a version, and keeps of `kbuild`, whose name stays
    the same from version to version, the newest alone: the newest of all mostly do not go together.
    """
    try:
        shown = run("apt-cache", *options, "show", META)
    except Unavailable:
        return []
    images = re.findall(r"^Depends: .*?\b(linux-image-\d\S+) \(= (\S+)\)", shown, re.MULTILINE)
    return [choice for image, version in images if (choice := whole(image, version, *options))]


def whole(image, version, *options):
    """The choice of this image; None where the index lacks something that goes with it."""
    release = image.removeprefix("linux-image-")
    headers = f"linux-headers-{release}"
    try:
        shown = run("apt-cache", *options, "show", f"{headers}={version}")
    except Unavailable:
        return None
    common = re.search(r"^Depends: .*?\b(linux-headers-\S+-common)", shown, re.MULTILINE)
    kbuild = re.search(r"^Depends: .*?\b(linux-kbuild-\S+)", shown, re.MULTILINE)
    if not common or not kbuild:
        return None
    series = re.match(r"\d+\.\d+", release)[0]
    names = {"image": image, "headers": headers, "common": common[1], "source": f"linux-source-{series}"}
    there = offered(*names.values(), kbuild[1], *options)
    # The headers ask for a `kbuild` of their version or a later one.
    fitting = [one for one in there.get(kbuild[1], []) if is_at_least(one, version)]
    if not fitting or any(version not in there.get(name, []) for name in names.values()):
        return None
    packages = {role: f"{name}={version}" for role, name in names.items()}
    return Choice(release, version, packages | {"kbuild": f"{kbuild[1]}={fitting[-1]}"})


def offered(*words):
    """The versions of these packages that can be downloaded, newest first, by the package's name."""
    versions = {}
    for line in run("apt-cache", "madison", *words).splitlines():
        name, version, source = (word.strip() for word in line.split("|", 2))
        if source.endswith(" Packages") and version not in versions.setdefault(name, []):
            versions[name].append(version)
    return versions


def is_at_least(version, least):
    """Whether a version of a package is this one or a later one."""
    return subprocess.run(["dpkg", "--compare-versions", version, "ge", least], check=False).returncode == 0


def fetch(work):
    """Downloads the packages of the newest kernel that is there whole. An index is as old as its last update, and the
    archive drops what it lists: where nothing of the machine's own can be had, one is made for this time alone."""
    missing = None
    for options in (), own_index(work):
        if options:
            # Another source of packages may be out of reach; what counts is what the index has then.
            with contextlib.suppress(Unavailable):
                run("apt-get", *options, "update", "-q")
        for choice in choices(*options):
            try:
                run("apt-get", *options, "download", "-q", *choice.packages.values(), cwd=work)
                return choice
            except Unavailable as reason:
                missing = missing or reason
    raise missing or Unavailable(f"the archive has no {META} with all that belongs to it")


def own_index(work):
    """Options of apt by which it has its index in this folder, for which nobody has to be root."""
    for folder in "lists/partial", "cache/archives/partial":
        (work / folder).mkdir(parents=True)
    return "-o", f"Dir::State::lists={work / 'lists'}", "-o", f"Dir::Cache={work / 'cache'}"


class Kernel:
    """A built kernel in the cache: `vmlinuz`, `modules/`, `siw-stock.ko`, `siw-tuned.ko`, its `version`."""

    def __init__(self, folder):
        self.folder = folder

    @property
    def version(self):
        return (self.folder / "version").read_text(encoding="utf-8").strip()

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
    newest = next(iter(choices()), None)
    wanted = " ".join(newest.packages.values()) if newest else ""
    inputs = Path(__file__).read_bytes() + wanted.encode()
    folder = cache / hashlib.sha256(inputs).hexdigest()[:16]
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as work:
            built = build(Path(work))
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
    return Kernel(folder)


def build(work):
    choice = fetch(work)
    release = choice.release
    deb = {role: next(work.glob(f"{name.replace('=', '_')}_*.deb")) for role, name in choice.packages.items()}
    result = work / "result"
    (result / "modules").mkdir(parents=True)
    (result / "version").write_text(f"{choice.version}\n", encoding="utf-8")
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
