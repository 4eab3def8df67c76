/* Descriptors: copies, ranges, limits, fork, exec, and passing them to others. */
#include "env.h"

#include <spawn.h>
#include <sys/syscall.h>

static void talks(int from, int to)
{
	char got[8] = "";

	EQ(send(from, "talk", 4, MSG_NOSIGNAL), 4);
	NEED(is_readable(to));
	EQ(recv(to, got, 8, 0), 4);
	SAME(got, "talk", 4);
}

/* --- copies */

SOCKETS("dup.shares-the-socket")
{
	struct ends e = ends_of(kind);
	int copy = dup(e.a);

	NEED(copy >= 0);
	CHECK(copy != e.a);
	talks(copy, e.b);
	talks(e.b, copy);
	EQ(close(e.a), 0);
	/* Only the last close ends it. */
	talks(copy, e.b);
	talks(e.b, copy);
	EQ(close(copy), 0);
	if (kind_type((enum kind)kind) == SOCK_STREAM) {
		char got[4];
		EQ(recv(e.b, got, 4, 0), 0);
	}
	EQ(close(e.b), 0);
}

SOCKETS("dup.shares-the-status-flags-not-the-descriptor-flags")
{
	struct ends e = ends_of(kind);
	int copy = dup(e.a);

	set_nonblocking(copy, true);
	CHECK(fcntl(e.a, F_GETFL) & O_NONBLOCK);
	NEED(fcntl(copy, F_SETFD, FD_CLOEXEC) == 0);
	EQ(fcntl(e.a, F_GETFD), 0);
	EQ(close(copy), 0);
	ends_close(e);
}

SOCKETS("dup2.takes-the-number")
{
	struct ends e = ends_of(kind);

	EQ(dup2(e.a, 200), 200);
	talks(200, e.b);
	EQ(fcntl(200, F_GETFD), 0);
	EQ(close(200), 0);
	talks(e.a, e.b);
	ends_close(e);
}

SOCKETS("dup2.closes-what-was-there")
{
	struct ends e = ends_of(kind), other = ends_of(kind);
	char got[8];

	EQ(dup2(other.a, e.a), e.a);
	talks(e.a, other.b);
	/* The first one's socket is gone. */
	if (kind_type((enum kind)kind) == SOCK_STREAM)
		EQ(recv(e.b, got, 8, 0), 0);
	EQ(close(other.a), 0);
	talks(e.a, other.b);
	ends_close(e);
	EQ(close(other.b), 0);
}

SOCKETS("dup2.onto-itself")
{
	struct ends e = ends_of(kind);

	NEED(fcntl(e.a, F_SETFD, FD_CLOEXEC) == 0);
	EQ(dup2(e.a, e.a), e.a);
	EQ(fcntl(e.a, F_GETFD), FD_CLOEXEC);
	talks(e.a, e.b);
	FAILS(dup2(9999, 9999), EBADF);
	ends_close(e);
}

SOCKETS("dup2.of-a-file-onto-a-socket")
{
	struct ends e = ends_of(kind);
	int file = open("/dev/null", O_RDWR);
	char got[8];

	NEED(file >= 0);
	EQ(dup2(file, e.a), e.a);
	EQ(write(e.a, "x", 1), 1);
	EQ(read(e.a, got, 1), 0);
	FAILS(send(e.a, "x", 1, 0), ENOTSOCK);
	FAILS(getsockname(e.a, NULL, NULL), ENOTSOCK);
	if (kind_type((enum kind)kind) == SOCK_STREAM)
		EQ(recv(e.b, got, 8, 0), 0);
	EQ(close(file), 0);
	ends_close(e);
}

SOCKETS("dup2.of-a-socket-onto-a-file")
{
	struct ends e = ends_of(kind);
	int file = open("/dev/null", O_RDWR);

	NEED(file >= 0);
	EQ(dup2(e.a, file), file);
	talks(file, e.b);
	EQ(write(file, "x", 1), 1);
	EQ(close(file), 0);
	ends_close(e);
}

SOCKETS("dup3.flags")
{
	struct ends e = ends_of(kind);

	EQ(dup3(e.a, 201, O_CLOEXEC), 201);
	EQ(fcntl(201, F_GETFD), FD_CLOEXEC);
	talks(201, e.b);
	FAILS(dup3(e.a, e.a, 0), EINVAL);
	FAILS(dup3(e.a, 202, 1), EINVAL);
	EQ(close(201), 0);
	ends_close(e);
}

SOCKETS("fcntl.dupfd")
{
	struct ends e = ends_of(kind);
	int copy = fcntl(e.a, F_DUPFD, 150);

	CHECK(copy >= 150);
	EQ(fcntl(copy, F_GETFD), 0);
	talks(copy, e.b);
	int other = fcntl(e.a, F_DUPFD_CLOEXEC, 150);
	CHECK(other >= 150 && other != copy);
	EQ(fcntl(other, F_GETFD), FD_CLOEXEC);
	FAILS(fcntl(e.a, F_DUPFD, -1), EINVAL);
	EQ(close(copy), 0);
	EQ(close(other), 0);
	ends_close(e);
}

SOCKETS("descriptor.the-lowest-free-number-is-taken")
{
	struct ends e = ends_of(kind);
	int copy = dup(e.a), low;

	NEED(copy >= 0);
	EQ(close(e.a), 0);
	low = dup(copy);
	EQ(low, e.a);
	EQ(close(copy), 0);
	e.a = low;
	ends_close(e);
}

SOCKETS("descriptor.socket-takes-the-lowest-free-number")
{
	struct ends e = ends_of(kind);

	EQ(close(0), 0);
	int fd = a_socket(kind);
	EQ(fd, 0);
	EQ(close(fd), 0);
	ends_close(e);
}

static int call_close_range(unsigned first, unsigned last, unsigned flags)
{
	int result = close_range(first, last, (int)flags);

	if (result < 0 && errno == ENOSYS)
		SKIP("this kernel has no close_range");
	return result;
}

SOCKETS("close_range.closes")
{
	struct ends e = ends_of(kind);
	char got[8];

	NEED(dup2(e.a, 300) == 300 && dup2(e.a, 305) == 305);
	EQ(call_close_range(300, 310, 0), 0);
	FAILS(send(300, "x", 1, 0), EBADF);
	FAILS(send(305, "x", 1, 0), EBADF);
	talks(e.a, e.b);
	NEED(dup2(e.a, 300) == 300);
	EQ(close(e.a), 0);
	EQ(call_close_range(300, ~0u, 0), 0);
	if (kind_type((enum kind)kind) == SOCK_STREAM)
		EQ(recv(e.b, got, 8, 0), 0);
	EQ(close(e.b), 0);
}

SOCKETS("close_range.marks")
{
	struct ends e = ends_of(kind);

	NEED(dup2(e.a, 300) == 300);
	int result = close_range(300, 300, 4 /* CLOSE_RANGE_CLOEXEC */);
	if (result < 0 && (errno == EINVAL || errno == ENOSYS))
		SKIP("this kernel has no CLOSE_RANGE_CLOEXEC");
	EQ(fcntl(300, F_GETFD), FD_CLOEXEC);
	talks(300, e.b);
	FAILS(call_close_range(5, 3, 0), EINVAL);
	EQ(close(300), 0);
	ends_close(e);
}

SOCKETS("closefrom")
{
	struct ends e = ends_of(kind);

	NEED(dup2(e.a, 300) == 300);
	closefrom(290);
	FAILS(send(300, "x", 1, 0), EBADF);
	talks(e.a, e.b);
	ends_close(e);
}

/* --- the limit */

/* No number is free from here on. */
static struct rlimit limited_to_what_is_open(void)
{
	struct rlimit limit;
	int next = dup(0);

	NEED(next >= 0 && close(next) == 0);
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = (rlim_t)next;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	return limit;
}

/* What runs at a program's end may open files. */
static void unlimited(void)
{
	struct rlimit limit;

	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

SOCKETS("limit.reached-by-socket-and-dup")
{
	struct ends e = ends_of(kind);
	struct rlimit limit = limited_to_what_is_open();

	FAILS(socket(kind_family((enum kind)kind), kind_type((enum kind)kind), 0), EMFILE);
	FAILS(dup(e.a), EMFILE);
	FAILS(dup2(e.a, (int)limit.rlim_cur), EBADF);
	FAILS(fcntl(e.a, F_DUPFD, 0), EMFILE);
	FAILS(epoll_create1(0), EMFILE);
	/* What is there works on. */
	talks(e.a, e.b);
	EQ(wait_for(e.a, POLLOUT, SOON), POLLOUT);
	EQ(close(0), 0);
	int fd = a_socket(kind);
	EQ(fd, 0);
	ends_close(e);
	unlimited();
}

STREAMS("limit.reached-by-accept")
{
	int listener = a_listener(kind, 4), fd = a_socket(kind);
	struct name name = name_of(listener);

	NEED(connect(fd, &name.any, name.length) == 0);
	limited_to_what_is_open();
	FAILS(accept(listener, NULL, NULL), EMFILE);
	/* The connection is not lost. */
	NEED(dup2(fd, 0) == 0 && close(fd) == 0);
	int got = accept(listener, NULL, NULL);
	CHECK(got >= 0);
	talks(0, got);
	EQ(close(got), 0);
	EQ(close(listener), 0);
	unlimited();
}

/* --- fork */

static void child_sends(void *of)
{
	struct ends *e = of;

	EQ(send(e->a, "from the child", 14, 0), 14);
}

SOCKETS("fork.the-child-sends")
{
	struct ends e = ends_of(kind);
	char got[32] = "";

	CHECK(in_child(child_sends, &e));
	EQ(recv(e.b, got, 32, 0), 14);
	SAME(got, "from the child", 14);
	/* The child's end did not end ours. */
	talks(e.a, e.b);
	talks(e.b, e.a);
	ends_close(e);
}

static void child_closes(void *of)
{
	struct ends *e = of;

	EQ(close(e->a), 0);
	EQ(close(e->b), 0);
}

SOCKETS("fork.the-child-closes")
{
	struct ends e = ends_of(kind);

	CHECK(in_child(child_closes, &e));
	talks(e.a, e.b);
	talks(e.b, e.a);
	ends_close(e);
}

static void child_shuts_down(void *of)
{
	struct ends *e = of;

	EQ(shutdown(e->a, SHUT_WR), 0);
}

STREAMS("fork.the-child-shuts-down-for-all")
{
	struct ends e = ends_of(kind);
	char got[8];

	CHECK(in_child(child_shuts_down, &e));
	EQ(recv(e.b, got, 8, 0), 0);
	FAILS(send(e.a, "x", 1, MSG_NOSIGNAL), EPIPE);
	ends_close(e);
}

static void child_waits(void *of)
{
	struct ends *e = of;
	char got[8];

	close(e->b);
	/* The parent has closed its end; ours keeps the stream open. */
	NEED(recv_all(e->a, got, 4));
	EQ(send(e->a, "bye!", 4, 0), 4);
}

STREAMS("fork.the-child-keeps-it-open")
{
	struct ends e = ends_of(kind);
	char got[8] = "";
	pid_t child = start_child(child_waits, &e);

	EQ(close(e.a), 0);
	EQ(send(e.b, "ask?", 4, 0), 4);
	NEED(recv_all(e.b, got, 4));
	SAME(got, "bye!", 4);
	EQ(recv(e.b, got, 4, 0), 0);
	CHECK(child_ended_well(child));
	EQ(close(e.b), 0);
}

static void child_takes_one(void *of)
{
	struct ends *e = of;
	char got[2];

	EQ(recv(e->b, got, 1, 0), 1);
	EQ(got[0], 'a');
}

STREAMS("fork.octets-are-shared-out")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "abc", 3, 0), 3);
	CHECK(in_child(child_takes_one, &e));
	EQ(recv(e.b, got, 8, 0), 2);
	SAME(got, "bc", 2);
	ends_close(e);
}

static void child_sets_nonblocking(void *of)
{
	set_nonblocking(((struct ends *)of)->a, true);
}

SOCKETS("fork.status-flags-are-shared")
{
	struct ends e = ends_of(kind);

	CHECK(in_child(child_sets_nonblocking, &e));
	CHECK(fcntl(e.a, F_GETFL) & O_NONBLOCK);
	ends_close(e);
}

static void child_accepts(void *of)
{
	int got = accept(*(int *)of, NULL, NULL);

	CHECK(got >= 0);
	EQ(send(got, "served", 6, 0), 6);
}

STREAMS("fork.the-child-accepts")
{
	int listener = a_listener(kind, 4), fd = a_socket(kind);
	struct name name = name_of(listener);
	char got[8] = "";
	pid_t child = start_child(child_accepts, &listener);

	EQ(close(listener), 0);
	NEED(connect(fd, &name.any, name.length) == 0);
	NEED(recv_all(fd, got, 6));
	CHECK(child_ended_well(child));
	EQ(recv(fd, got, 6, 0), 0);
	EQ(close(fd), 0);
}

static void child_forks(void *of)
{
	CHECK(in_child(child_sends, of));
}

SOCKETS("fork.of-a-fork")
{
	struct ends e = ends_of(kind);
	char got[32];

	CHECK(in_child(child_forks, &e));
	EQ(recv(e.b, got, 32, 0), 14);
	ends_close(e);
}

STREAMS("fork.a-killed-child-ends-only-its-own")
{
	struct ends e = ends_of(kind);
	pid_t child = fork();
	int status;

	NEED(child >= 0);
	if (child == 0)
		for (;;)
			pause();
	EQ(kill(child, SIGKILL), 0);
	EQ(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)), child);
	talks(e.a, e.b);
	ends_close(e);
}

SOCKETS("vfork.the-child-execs")
{
	struct ends e = ends_of(kind);
	pid_t child = vfork();

	if (child == 0) {
		execl("/bin/true", "true", NULL);
		_exit(127);
	}
	CHECK(child_ended_well(child));
	talks(e.a, e.b);
	ends_close(e);
}

SOCKETS("vfork.the-child-arranges-descriptors")
{
	struct ends e = ends_of(kind);
	char number[16], got[32] = "";
	snprintf(number, sizeof(number), "%d", e.a);
	pid_t child = vfork();

	if (child == 0) {
		/* As shells and servers do it. */
		dup2(e.a, 1);
		close(e.a);
		close(e.b);
		execl("/bin/echo", "echo", "by echo", NULL);
		_exit(127);
	}
	CHECK(child_ended_well(child));
	EQ(recv(e.b, got, 32, 0), 8);
	SAME(got, "by echo\n", 8);
	/* What the child closed is open here. */
	talks(e.a, e.b);
	ends_close(e);
}

/* --- exec */

static pid_t run(const char *script, const char *argument)
{
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		execl("/bin/sh", "sh", "-c", script, "sh", argument, NULL);
		_exit(127);
	}
	return child;
}

SOCKETS("exec.a-socket-is-inherited")
{
	struct ends e = ends_of(kind);
	char got[32] = "", path[32];

	NEED(dup2(e.a, 9) == 9);
	snprintf(path, sizeof(path), "hello");
	CHECK(child_ended_well(run("echo $1 >&9", path)));
	EQ(recv(e.b, got, 32, 0), 6);
	SAME(got, "hello\n", 6);
	EQ(close(9), 0);
	talks(e.a, e.b);
	ends_close(e);
}

SOCKETS("exec.close-on-exec-is-closed")
{
	struct ends e = ends_of(kind);

	NEED(dup3(e.a, 9, O_CLOEXEC) == 9);
	CHECK(child_ended_well(run("if (echo x >&9) 2>/dev/null; then exit 1; fi", "")));
	CHECK(stays_quiet(e.b));
	talks(9, e.b);
	EQ(close(9), 0);
	ends_close(e);
}

STREAMS("exec.the-program-reads-and-writes")
{
	struct ends e = ends_of(kind);
	char got[32] = "";

	NEED(dup2(e.a, 9) == 9);
	EQ(close(e.a), 0);
	pid_t child = run("exec 0<&9 1>&9 9>&-; while read word; do echo \"<$word>\"; done", "");
	EQ(close(9), 0);
	EQ(send(e.b, "one\ntwo\n", 8, 0), 8);
	NEED(recv_all(e.b, got, 12));
	SAME(got, "<one>\n<two>\n", 12);
	EQ(shutdown(e.b, SHUT_WR), 0);
	EQ(recv(e.b, got, 32, 0), 0);
	CHECK(child_ended_well(child));
	EQ(close(e.b), 0);
}

SOCKETS("exec.posix_spawn-with-actions")
{
	struct ends e = ends_of(kind);
	posix_spawn_file_actions_t actions;
	char *const arguments[] = {"echo", "spawned", NULL}, got[32] = "";
	pid_t child;

	NEED(posix_spawn_file_actions_init(&actions) == 0);
	NEED(posix_spawn_file_actions_adddup2(&actions, e.a, 1) == 0);
	NEED(posix_spawn_file_actions_addclose(&actions, e.b) == 0);
	EQ(posix_spawn(&child, "/bin/echo", &actions, NULL, arguments, environ), 0);
	CHECK(child_ended_well(child));
	EQ(recv(e.b, (char *)got, 32, 0), 8);
	SAME(got, "spawned\n", 8);
	posix_spawn_file_actions_destroy(&actions);
	talks(e.a, e.b);
	ends_close(e);
}

SOCKETS("exec.popen-closes-nothing-of-ours")
{
	struct ends e = ends_of(kind);
	FILE *pipe = popen("cat >/dev/null", "w");

	NEED(pipe);
	fputs("words", pipe);
	EQ(pclose(pipe), 0);
	talks(e.a, e.b);
	ends_close(e);
}

/* --- passing descriptors */

static void pass(int over, const int *fds, int count)
{
	char octet = 'p', space[CMSG_SPACE(8 * sizeof(int))] = {};
	struct iovec out = {&octet, 1};
	struct msghdr msg = {.msg_iov = &out, .msg_iovlen = 1, .msg_control = space,
			     .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	*head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
				 .cmsg_len = CMSG_LEN((size_t)count * sizeof(int))};
	memcpy(CMSG_DATA(head), fds, (size_t)count * sizeof(int));
	EQ(sendmsg(over, &msg, 0), 1);
}

/* How many came; the message's flags go to `flags`. */
static int take(int over, int *fds, int room, int ask, int *flags)
{
	char octet, space[CMSG_SPACE(8 * sizeof(int))];
	struct iovec in = {&octet, 1};
	struct msghdr msg = {.msg_iov = &in, .msg_iovlen = 1, .msg_control = space,
			     .msg_controllen = CMSG_LEN((size_t)room * sizeof(int))};

	if (recvmsg(over, &msg, ask) != 1)
		return -1;
	if (flags)
		*flags = msg.msg_flags;
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	if (!head)
		return 0;
	EQ(head->cmsg_level, SOL_SOCKET);
	EQ(head->cmsg_type, SCM_RIGHTS);
	int count = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	memcpy(fds, CMSG_DATA(head), (size_t)count * sizeof(int));
	return count;
}

static struct ends unix_ends(void)
{
	int two[2];

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, two) == 0);
	return (struct ends){two[0], two[1]};
}

SOCKETS("pass.a-socket-to-oneself")
{
	struct ends e = ends_of(kind), over = unix_ends();
	int got = -1;

	pass(over.a, &e.a, 1);
	EQ(take(over.b, &got, 1, 0, NULL), 1);
	CHECK(got >= 0 && got != e.a);
	EQ(fcntl(got, F_GETFD), 0);
	talks(got, e.b);
	talks(e.b, got);
	EQ(close(e.a), 0);
	talks(got, e.b);
	e.a = got;
	ends_close(e);
	ends_close(over);
}

SOCKETS("pass.with-close-on-exec")
{
	struct ends e = ends_of(kind), over = unix_ends();
	int got = -1;

	pass(over.a, &e.a, 1);
	EQ(take(over.b, &got, 1, MSG_CMSG_CLOEXEC, NULL), 1);
	EQ(fcntl(got, F_GETFD), FD_CLOEXEC);
	EQ(close(got), 0);
	ends_close(e);
	ends_close(over);
}

SOCKETS("pass.closed-on-the-way-it-lives")
{
	struct ends e = ends_of(kind), over = unix_ends();
	int got = -1;

	pass(over.a, &e.a, 1);
	EQ(close(e.a), 0);
	/* In flight: open all the same. */
	if (kind_type((enum kind)kind) == SOCK_STREAM)
		CHECK(stays_quiet(e.b));
	EQ(take(over.b, &got, 1, 0, NULL), 1);
	e.a = got;
	talks(e.a, e.b);
	ends_close(e);
	ends_close(over);
}

STREAMS("pass.never-taken-it-is-closed")
{
	struct ends e = ends_of(kind), over = unix_ends();
	char got[4];

	pass(over.a, &e.a, 1);
	EQ(close(e.a), 0);
	ends_close(over);
	EQ(recv(e.b, got, 4, 0), 0);
	EQ(close(e.b), 0);
}

SOCKETS("pass.several-at-once")
{
	struct ends e = ends_of(kind), over = unix_ends();
	int fds[4] = {e.a, e.b, e.a, over.a}, got[4] = {-1, -1, -1, -1};

	pass(over.a, fds, 4);
	EQ(take(over.b, got, 4, 0, NULL), 4);
	talks(got[0], got[1]);
	talks(got[1], got[2]);
	for (int i = 0; i < 4; i++)
		EQ(close(got[i]), 0);
	ends_close(e);
	ends_close(over);
}

SOCKETS("pass.more-than-there-is-room-is-cut")
{
	struct ends e = ends_of(kind), over = unix_ends();
	int fds[3] = {e.a, e.b, e.a}, got[4] = {-1, -1, -1, -1}, flags = 0;

	pass(over.a, fds, 3);
	int count = take(over.b, got, 1, 0, &flags);
	CHECK(count == 1 || count == 2);
	CHECK(flags & MSG_CTRUNC);
	talks(got[0], e.b);
	for (int i = 0; i < count; i++)
		EQ(close(got[i]), 0);
	ends_close(e);
	ends_close(over);
}

struct passing {
	struct ends e, over;
};

static void child_takes_and_sends(void *of)
{
	struct passing *p = of;
	int got = -1;

	close(p->e.a);
	close(p->e.b);
	EQ(take(p->over.b, &got, 1, 0, NULL), 1);
	EQ(send(got, "passed", 6, 0), 6);
}

SOCKETS("pass.to-a-child")
{
	struct passing p = {ends_of(kind), unix_ends()};
	char got[8] = "";
	pid_t child = start_child(child_takes_and_sends, &p);

	pass(p.over.a, &p.e.a, 1);
	EQ(close(p.e.a), 0);
	EQ(recv(p.e.b, got, 8, 0), 6);
	SAME(got, "passed", 6);
	CHECK(child_ended_well(child));
	EQ(close(p.e.b), 0);
	ends_close(p.over);
}

static void child_makes_and_passes(void *of)
{
	struct ends *over = of;
	struct ends e = ends_of(TCP4);

	pass(over->a, &e.a, 1);
	pass(over->a, &e.b, 1);
}

CASE("pass.from-a-child-that-ends")
{
	struct ends over = unix_ends();
	int a = -1, b = -1;

	CHECK(in_child(child_makes_and_passes, &over));
	EQ(take(over.b, &a, 1, 0, NULL), 1);
	EQ(take(over.b, &b, 1, 0, NULL), 1);
	talks(a, b);
	talks(b, a);
	ends_close(over);
}

STREAMS("pass.a-listener")
{
	struct ends over = unix_ends();
	int listener = a_listener(kind, 4), got = -1, fd = a_socket(kind);
	struct name name = name_of(listener);

	pass(over.a, &listener, 1);
	EQ(close(listener), 0);
	EQ(take(over.b, &got, 1, 0, NULL), 1);
	NEED(connect(fd, &name.any, name.length) == 0);
	int end = accept(got, NULL, NULL);
	NEED(end >= 0);
	talks(fd, end);
	ends_close(over);
}

SOCKETS("pass.by-pidfd_getfd")
{
	struct ends e = ends_of(kind);
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (pidfd < 0)
		SKIP("this kernel has no pidfd_open (%s)", strerror(errno));
	int got = (int)syscall(SYS_pidfd_getfd, pidfd, e.a, 0);
	if (got < 0)
		SKIP("pidfd_getfd is not allowed here (%s)", strerror(errno));
	EQ(fcntl(got, F_GETFD), FD_CLOEXEC);
	talks(got, e.b);
	EQ(close(e.a), 0);
	talks(got, e.b);
	EQ(close(got), 0);
	EQ(close(pidfd), 0);
	EQ(close(e.b), 0);
}

CASE("pass.credentials")
{
	struct ends over = unix_ends();
	char octet, space[CMSG_SPACE(sizeof(struct ucred))];
	struct iovec in = {&octet, 1};
	struct msghdr msg = {.msg_iov = &in, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};

	set_int(over.b, SOL_SOCKET, SO_PASSCRED, 1);
	EQ(send(over.a, "x", 1, 0), 1);
	EQ(recvmsg(over.b, &msg, 0), 1);
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	NEED(head && head->cmsg_type == SCM_CREDENTIALS);
	struct ucred who;
	memcpy(&who, CMSG_DATA(head), sizeof(who));
	EQ(who.pid, getpid());
	EQ(who.uid, getuid());
	socklen_t length = sizeof(who);
	EQ(getsockopt(over.a, SOL_SOCKET, SO_PEERCRED, &who, &length), 0);
	EQ(who.pid, getpid());
	ends_close(over);
}

static void pair_of(long type)
{
	int two[2];
	char got[8] = "";

	NEED(socketpair(AF_UNIX, (int)type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, two) == 0);
	EQ(fcntl(two[0], F_GETFD), FD_CLOEXEC);
	CHECK(fcntl(two[1], F_GETFL) & O_NONBLOCK);
	FAILS(recv(two[1], got, 8, 0), EAGAIN);
	EQ(send(two[0], "pair", 4, 0), 4);
	EQ(recv(two[1], got, 8, 0), 4);
	EQ(close(two[0]), 0);
	EQ(close(two[1]), 0);
}

CASES
{
	ADD(pair_of, SOCK_STREAM, "socketpair.stream");
	ADD(pair_of, SOCK_DGRAM, "socketpair.datagram");
	ADD(pair_of, SOCK_SEQPACKET, "socketpair.seqpacket");
}

CASE("socketpair.of-the-internet-is-refused")
{
	int two[2];

	FAILS(socketpair(AF_INET, SOCK_STREAM, 0, two), EOPNOTSUPP);
}

/* --- other things that look like descriptors of sockets */

CASE("other.pipes-files-and-eventfds-are-no-sockets")
{
	int two[2];
	char got[8];
	struct msghdr msg = {};
	socklen_t length = sizeof(got);

	NEED(pipe(two) == 0);
	FAILS(send(two[1], "x", 1, 0), ENOTSOCK);
	FAILS(recv(two[0], got, 1, 0), ENOTSOCK);
	FAILS(sendmsg(two[1], &msg, 0), ENOTSOCK);
	FAILS(recvmsg(two[0], &msg, 0), ENOTSOCK);
	FAILS(listen(two[0], 1), ENOTSOCK);
	FAILS(accept(two[0], NULL, NULL), ENOTSOCK);
	FAILS(shutdown(two[0], SHUT_RD), ENOTSOCK);
	FAILS(getsockopt(two[0], SOL_SOCKET, SO_TYPE, got, &length), ENOTSOCK);
	FAILS(setsockopt(two[0], SOL_SOCKET, SO_KEEPALIVE, got, 4), ENOTSOCK);
	EQ(write(two[1], "pipe", 4), 4);
	EQ(wait_for(two[0], POLLIN, SOON), POLLIN);
	EQ(read(two[0], got, 8), 4);
	EQ(close(two[0]), 0);
	EQ(close(two[1]), 0);
}

CASE("other.families-and-types-of-none")
{
	FAILS(socket(9999, SOCK_STREAM, 0), EAFNOSUPPORT);
	FAILS(socket(AF_INET, 99, 0), EINVAL);
	FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
	FAILS(socket(AF_INET, SOCK_STREAM | 0x100000, 0), EINVAL);
}
