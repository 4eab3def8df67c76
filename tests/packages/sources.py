"""The line for the sources, as it stands in the README, in a clean system."""

import shutil
import time

from bed import ROOT, Failed, case, need, pinged, pings, said
from clean import USER, System

BUILDING = 3600  # seconds on a busy machine
HOME = "/home/somebody"


@case(full=True)
def sources_in_a_clean_bookworm(bed):
    """An ordinary user with sudo, and the Rust of this machine, as rustup would bring it: what else it takes, the line
    installs itself."""
    need("rustc", "cargo", "git")
    system = System(bed, "bookworm", "rdmacm-utils,ibverbs-utils,sudo,ca-certificates,make,git")
    (system.root / "etc/sudoers.d/somebody").write_text("somebody ALL=(ALL) NOPASSWD: ALL\n")
    rust = said(["rustc", "--print", "sysroot"]).strip()
    shutil.copytree(rust, system.root / "opt/rust", symlinks=True,
                    ignore=shutil.ignore_patterns("share", "rust-analyzer*"))
    said(["git", "clone", "--quiet", ROOT, system.root / HOME.lstrip("/") / "weft"])
    system.run(f"chown -R {USER} {HOME}/weft")
    variables = {"HOME": HOME, "PATH": "/opt/rust/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                 "DEBIAN_FRONTEND": "noninteractive"}
    before = system.files()
    certificates = system.certificates()
    if certificates:
        variables["CARGO_HTTP_CAINFO"] = certificates["PIP_CERT"]
    words = " ".join(f"{name}={value}" for name, value in variables.items())

    def as_user(script):
        system.run(f"cd {HOME}/weft && setpriv --reuid={USER} --regid={USER} --clear-groups env -i {words} "
                   f"sh -ec '{script}'", BUILDING, network=True)

    begin = time.monotonic()
    as_user("make build && sudo make install")
    took = time.monotonic() - begin
    pinged(system.run_as_user(pings("/usr/local/bin/weft")))
    size = sum(path.stat().st_size for path in (system.root / "usr/local/lib/weft").rglob("*") if path.is_file())
    size += (system.root / "usr/local/bin/weft").stat().st_size
    print(f"    bookworm: make build && sudo make install {took:.0f} s, {size / 1e6:.0f} MB installed", flush=True)
    as_user("sudo make uninstall")
    left = {name for name in system.files() - before if name.startswith("/usr/local/")}
    if left:
        raise Failed(f"make uninstall has left {sorted(left)}")
