"""Weft under a container's seccomp profile: one that forbids what Docker's does, and ones that forbid what Weft uses."""

from bed import ROOT, Failed, case, need, pinged, pings, said
from debs import in_own_network

# Of what Docker's profile refuses, the calls that something here might want; each fails with EPERM.
DOCKER = ("add_key,bpf,io_uring_enter,io_uring_register,io_uring_setup,kcmp,keyctl,mount,move_pages,open_by_handle_at,"
          "perf_event_open,process_vm_readv,process_vm_writev,ptrace,request_key,setns,umount2,unshare,userfaultfd")
# What Weft does without, one at a time.
SPARED = ("memfd_create", "sched_setattr", "statx", "pidfd_open", "clone3", "io_uring_setup", "process_vm_writev")
# What it cannot do without, and the word by which its complaint names it.
NEEDED = {"socket": "socket", "epoll_create1": "epoll", "eventfd2": "eventfd"}


def confined(bed):
    """The program that runs another under a filter."""
    def make():
        need("cc")
        program = bed.folder / "confined"
        said(["cc", "-O1", "-Wall", "-o", program, ROOT / "tests/packages/confined.c"])
        return program
    return bed.once("confined", make)


def served(bed, calls):
    """The usual programs under Weft, where these calls fail."""
    need("rping", "ibv_rc_pingpong")
    pinged(in_own_network(pings(f"{confined(bed)} {calls} {bed.build / 'weft'}")))


@case()
def what_a_containers_profile_forbids_is_not_needed(bed):
    served(bed, DOCKER)


@case(full=True)
def each_call_that_weft_can_do_without_is_done_without(bed):
    for call in SPARED:
        served(bed, call)


@case()
def what_is_forbidden_and_needed_is_said(bed):
    need("ibv_devinfo")
    for call, word in NEEDED.items():
        command = f"{confined(bed)} {call} {bed.build / 'weft'} run -- ibv_devinfo"
        words = in_own_network(f"ip link set lo up; {command} 2>&1 || true")
        lines = [line for line in words.splitlines() if line.startswith("weft") and word in line]
        if not lines or "not permitted" not in lines[0].lower():
            raise Failed(f"without {call} it says: {words}")
