/* Runs a program under a seccomp filter, as a container's profile does: the system calls that are named fail with
 * EPERM, in it and in all that it starts.
 *
 *     confined CALL[,CALL...] PROGRAM [ARGUMENT...]
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "another machine: name its AUDIT_ARCH here"
#endif

#define CALL(name) {#name, SYS_##name}

static const struct {
	const char *name;
	long number;
} calls[] = {
	CALL(add_key), CALL(bpf), CALL(clone3), CALL(epoll_create1), CALL(eventfd2), CALL(getrandom),
	CALL(io_uring_enter), CALL(io_uring_register), CALL(io_uring_setup), CALL(kcmp), CALL(keyctl),
	CALL(memfd_create), CALL(mount), CALL(move_pages), CALL(open_by_handle_at), CALL(perf_event_open),
	CALL(pidfd_open), CALL(prctl), CALL(process_vm_readv), CALL(process_vm_writev), CALL(ptrace),
	CALL(request_key), CALL(sched_setattr), CALL(setns), CALL(socket), CALL(statx), CALL(timerfd_create),
	CALL(umount2), CALL(unshare), CALL(userfaultfd),
};

static long number(const char *name)
{
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if (strcmp(calls[i].name, name) == 0)
			return calls[i].number;
	fprintf(stderr, "confined: no call %s is known here\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	struct sock_filter filter[2 * (sizeof calls / sizeof *calls) + 8];
	unsigned short length = 0;

	if (argc < 3) {
		fprintf(stderr, "usage: confined CALL[,CALL...] PROGRAM [ARGUMENT...]\n");
		return 2;
	}
	filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
	filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (char *name = strtok(argv[1], ","); name; name = strtok(NULL, ",")) {
		if (length + 3u > sizeof filter / sizeof *filter) {
			fprintf(stderr, "confined: too many calls\n");
			return 2;
		}
		filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number(name), 0, 1);
		filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	}
	filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {.len = length, .filter = filter};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("confined: prctl");
		return 2;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
