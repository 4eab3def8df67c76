"""The guest's root: busybox, this machine's own RDMA programs with the libraries they need, and the scripts in guest/.

The programs are the host's, so both ends of a test run the same versions, and libweft, built here, runs there.
"""

import gzip
import os
import shutil
import subprocess
from pathlib import Path

from kernel import Unavailable, run

PROGRAMS = """rping ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat ibv_devices ibv_devinfo
              rstream riostream rcopy rdma ip tc""".split()
PROVIDERS = Path("/usr/lib/x86_64-linux-gnu/libibverbs")
FOLDERS = "bin dev etc/libibverbs.d lib64 mnt modules proc root run sys tmp usr/bin usr/lib/x86_64-linux-gnu/libibverbs"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
# Opened by name at run time, so that no program lists them.
DLOPENED = ["libgcc_s.so.1"]
# Makes rsockets of an ordinary program's sockets; in a package with librdmacm.
RSPRELOAD = Path("/") / LIBRARIES / "rsocket/librspreload.so.1"


def build(kernel, folder):
    """Writes `folder`/initramfs.gz and returns its path."""
    root = folder / "root"
    for name in FOLDERS.split():
        (root / name).mkdir(parents=True)
    install_busybox(root)
    install_programs(root)
    install_modules(root, kernel)
    for script in (Path(__file__).parent / "guest").iterdir():
        shutil.copy(script, root / script.name)
        (root / script.name).chmod(0o755)
    image = folder / "initramfs.gz"
    names = subprocess.run(["find", ".", "-print0"], cwd=root, capture_output=True, check=True).stdout
    try:
        archive = subprocess.run(["cpio", "--quiet", "--null", "-o", "-H", "newc"], cwd=root, input=names,
                                 capture_output=True, check=True).stdout
    except OSError as error:
        raise Unavailable("cpio is not installed") from error
    image.write_bytes(gzip.compress(archive, compresslevel=1))
    shutil.rmtree(root)
    return image


def found(program):
    path = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if not path:
        raise Unavailable(f"{program} is not installed")
    return path


def install_busybox(root):
    busybox = root / "bin/busybox"
    shutil.copy(found("busybox"), busybox)
    if libraries(busybox):
        raise Unavailable("busybox is not static (package busybox-static)")
    for applet in run(str(busybox), "--list").split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")


def install_programs(root):
    files = [Path(found(program)) for program in PROGRAMS]
    for file in files:
        shutil.copy(file, root / "usr/bin")
    siw = sorted(PROVIDERS.glob("libsiw-*.so"))
    if not siw:
        raise Unavailable("libsiw is not installed (package ibverbs-providers)")
    shutil.copy(siw[-1], root / "usr/lib/x86_64-linux-gnu/libibverbs")
    (root / "etc/libibverbs.d/siw.driver").write_text("driver siw\n", encoding="utf-8")
    if not RSPRELOAD.exists():
        raise Unavailable("librspreload is not installed (package librdmacm1)")
    shutil.copy(RSPRELOAD, root / LIBRARIES)
    needed = {path for file in [*files, siw[-1], RSPRELOAD] for path in libraries(file)}
    for library in needed | {Path("/") / LIBRARIES / name for name in DLOPENED}:
        # The loader is looked for where the programs name it.
        place = "lib64" if library.name.startswith("ld-linux") else LIBRARIES
        shutil.copy(library, root / place / library.name)


def libraries(file):
    """The libraries that a program needs, by path."""
    done = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
    words = [word for line in done.stdout.splitlines() for word in line.split()]
    return {Path(word) for word in words if word.startswith("/")}


def install_modules(root, kernel):
    for module in [*kernel.modules(), kernel.folder / "siw-stock.ko", kernel.folder / "siw-tuned.ko"]:
        shutil.copy(module, root / "modules")
    order = "".join(f"{module.name}\n" for module in kernel.modules())
    (root / "modules/order").write_text(order, encoding="utf-8")
