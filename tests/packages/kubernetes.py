"""The example for Kubernetes: what its schemas say, that it asks for nothing special, and its pods, played by network
namespaces."""

import subprocess
import sys
import time

from bed import PATIENCE, ROOT, Failed, Skip, case, need, said
from containers import images

sys.path.append(str(ROOT / "tests/rig"))
from network import Namespaces, may_have_namespaces  # noqa: E402

EXAMPLE = ROOT / "examples/kubernetes/rping.yaml"
# A release of Kubernetes that its users have today.
RELEASE = "1.30"
SERVER, CLIENT = "10.244.1.1", "10.244.1.2"


def manifests():
    """The documents of the example, by kind."""
    try:
        import yaml
    except ImportError:
        raise Skip("install the Debian package python3-yaml") from None
    return {document["kind"]: document for document in yaml.safe_load_all(EXAMPLE.read_text())}


def containers_of(found):
    return {"Pod": found["Pod"]["spec"]["containers"], "Job": found["Job"]["spec"]["template"]["spec"]["containers"]}


@case()
def kubernetes_example_asks_for_nothing_special(_):
    found = manifests()
    for kind, containers in containers_of(found).items():
        spec = found[kind]["spec"] if kind == "Pod" else found[kind]["spec"]["template"]["spec"]
        special = {"hostNetwork", "hostPID", "hostIPC", "volumes"} & set(spec)
        for container in containers:
            limits = container["resources"].get("limits", {}).keys() | container["resources"]["requests"].keys()
            security = container["securityContext"]
            tame = security["runAsNonRoot"] and security["readOnlyRootFilesystem"] and not security.get("privileged")
            if special or limits - {"cpu", "memory"} or not tame or security["capabilities"] != {"drop": ["ALL"]}:
                raise Failed(f"{kind}: {special or container}")
    service = found["Service"]["spec"]
    port = containers_of(found)["Pod"][0]["readinessProbe"]["tcpSocket"]["port"]
    if service["selector"] != found["Pod"]["metadata"]["labels"] or service["ports"][0]["port"] != port:
        raise Failed("the service is not the pod's")


@case(full=True)
def kubernetes_example_is_what_its_schemas_say(bed):
    need("python3")
    place = bed.place("schemas")
    said(["python3", "-m", "venv", place])
    said([place / "bin/pip", "install", "--quiet", "kubernetes-validate"], 300)
    said([place / "bin/kubernetes-validate", "--strict", "--version", RELEASE, EXAMPLE])


@case(full=True)
def pods_of_the_example_reach_each_other(bed):
    if not may_have_namespaces():
        raise Skip("no namespaces to be had")
    found, made = manifests(), images(bed)
    server, client = (containers_of(found)[kind][0] for kind in ("Pod", "Job"))
    hosts = bed.place("hosts") / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{SERVER} {found['Service']['metadata']['name']}\n")
    namespaces = Namespaces()
    try:
        pods = [namespaces.add(name) for name in ("server", "client")]
        namespaces.join(*pods)
        for pod, address in zip(pods, (SERVER, CLIENT), strict=True):
            pod.up("eth0", f"{address}/24")
        with made.inside("weft", enter=pods[0].enter, hosts=hosts) as inside:
            serving = subprocess.Popen([*inside, *entry(made), *server["args"]], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            try:
                await_ready(pods[1], server["readinessProbe"]["tcpSocket"]["port"])
                with made.inside("weft", enter=pods[1].enter, hosts=hosts) as other:
                    words = said([*other, *entry(made), *client["args"]])
            finally:
                serving.terminate()
                serving.wait(PATIENCE)
    finally:
        namespaces.close()
    if f"rdma-ping-{int(client['args'][client['args'].index('-C') + 1]) - 1}" not in words:
        raise Failed(f"the client says: {words[-2000:]}")


def entry(made):
    return made.config("weft")["Entrypoint"]


def await_ready(pod, port):
    """Waits until a kubelet would call the server ready."""
    probe = f"import socket; socket.create_connection(({SERVER!r}, {port}), 1)"
    end = time.monotonic() + PATIENCE
    while subprocess.run([*pod.enter, sys.executable, "-c", probe], check=False, capture_output=True).returncode:
        if time.monotonic() > end:
            raise Failed("the server is never ready")
        time.sleep(0.1)
