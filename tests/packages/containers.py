"""The image that packages/container describes: built as it says, from a base that is made here, and run by a user
without rights, in a tree that nobody can write to."""

import contextlib
import json
import os

from bed import MAKING, PATIENCE, ROOT, Failed, Skip, case, need, pinged, pings, said

RECIPE = ROOT / "packages/container/Containerfile"
# Weft in somebody else's image (docs/packages.md): whatever that is made of, it has glibc.
TWO_LINES = """
COPY --from=weft /usr/bin/weft /usr/bin/weft
COPY --from=weft /usr/lib/weft /usr/lib/weft
"""


class Images:
    """What podman keeps, in a folder of its own."""

    def __init__(self, bed):
        need("podman", "mmdebstrap", "bwrap")
        if os.geteuid() != 0:
            raise Skip("building an image needs root here")
        self.folder = bed.place("images")
        base = self.folder / "base.tar"
        try:
            said(["mmdebstrap", "--quiet", "--variant=apt", "bookworm", base], MAKING)
        except Failed as failed:
            raise Skip(f"no bookworm from the mirror: {str(failed).splitlines()[-1]}") from None
        self.podman("import", base, "localhost/base")

    def podman(self, *words, seconds=PATIENCE):
        kept = ["--root", self.folder / "kept", "--runroot", self.folder / "run", "--storage-driver", "vfs"]
        return said(["podman", *kept, "--cgroup-manager", "cgroupfs", *words], seconds)

    def build(self, name, recipe, context):
        self.podman("build", "--isolation", "chroot", "--network", "host", "--build-arg", "BASE=localhost/base",
                    "--file", recipe, "--tag", name, context, seconds=MAKING)

    def config(self, image):
        return json.loads(self.podman("image", "inspect", image))[0]["Config"]

    @contextlib.contextmanager
    def inside(self, image, enter=(), hosts=None):
        """What stands before a command that is to run in that image: by the image's user, or nobody, with nothing to
        write to, no capability, and a network of its own or the one that `enter` leads to. `hosts` takes the place of
        its table of hosts."""
        root = self.podman("image", "mount", image).strip()
        user, group = (self.config(image).get("User") or "65534:65534").split(":")
        apart = [f"--unshare-{what}" for what in ("user", "pid", "ipc", "uts", "cgroup-try", *(["net"] * (not enter)))]
        table = ["--ro-bind", hosts, "/etc/hosts"] if hosts else []
        try:
            yield [*enter, "bwrap", "--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev", *table, *apart, "--uid",
                   user, "--gid", group, "--cap-drop", "ALL", "--die-with-parent", "--clearenv", "--setenv", "PATH",
                   "/usr/bin:/bin"]
        finally:
            self.podman("image", "unmount", image)

    def run(self, image, *words):
        """What a command prints in that image."""
        with self.inside(image) as inside:
            return said([*inside, *words])


def images(bed):
    """The image that the recipe describes, as `weft`."""
    def make():
        made = Images(bed)
        context = bed.place("context")
        (context / bed.package("deb").name).write_bytes(bed.package("deb").read_bytes())
        made.build("weft", RECIPE, context)
        return made
    return bed.once("images", make)


@case(full=True)
def image_serves_a_user_without_rights(bed):
    # No folder can be written to, so what both ends say goes nowhere.
    script = pings("weft").replace("/tmp/server-$$", "/dev/null").replace("/tmp/client-$$", "/dev/null")
    script = script.replace("rm -f /dev/null /dev/null", "")
    words = images(bed).run("weft", "sh", "-c", f"! touch /anything /tmp/anything 2>/dev/null\n{script}")
    pinged(words)
    size = json.loads(images(bed).podman("image", "inspect", "weft"))[0]["Size"]
    base = json.loads(images(bed).podman("image", "inspect", "localhost/base"))[0]["Size"]
    print(f"    image {size / 1e6:.0f} MB, of which {(size - base) / 1e6:.0f} MB on top of its base", flush=True)


@case(full=True)
def image_does_what_its_entrypoint_says(bed):
    config = images(bed).config("weft")
    words = images(bed).run("weft", *config["Entrypoint"], *config["Cmd"])
    if "weft0" not in words:
        raise Failed(f"it says: {words}")


@case(full=True)
def two_lines_bring_weft_into_another_image(bed):
    recipe = bed.place("other-image") / "Containerfile"
    recipe.write_text(f"FROM localhost/base{TWO_LINES}")
    images(bed).build("other", recipe, recipe.parent)
    words = images(bed).run("other", "weft", "doctor")
    if "verdict: yes" not in words or "this machine has no rdma-core" not in words:
        raise Failed(f"it says: {words}")
