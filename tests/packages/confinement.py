"""Weft under seccomp profiles of containers: one that forbids what Docker's does, and ones that forbid what it uses."""

from bed import ROOT, Failed, case, need, pinged, pings, said
from debs import in_own_network

# Of what Docker's profile refuses, the calls that something here might want; each fails with EPERM.
DOCKER = ("add_key,bpf,io_uring_enter,io_uring_register,io_uring_setup,kcmp,keyctl,mount,move_pages,open_by_handle_at,"
          "perf_event_open,process_vm_readv,process_vm_writev,ptrace,request_key,setns,umount2,unshare,userfaultfd")
# What Weft does without, one at a time.
SPARED = ("getrandom", "io_uring_setup", "memfd_create", "pidfd_open", "prctl", "process_vm_writev", "sched_setattr",
          "statx", "timerfd_create")
# What it cannot do without.
NEEDED = ("socket", "epoll_create1", "eventfd2")


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
    need("rping")
    for call in NEEDED:
        command = f"{confined(bed)} {call} {bed.build / 'weft'} run -- rping -s -a 127.0.0.1"
        words = in_own_network(f"ip link set lo up; {command} 2>&1 || true")
        lines = [line for line in words.splitlines() if line.startswith("weft: error: ") and "seccomp" in line]
        if len(lines) != 1 or call not in lines[0]:
            raise Failed(f"without {call} it says: {words}")
