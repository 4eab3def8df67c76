/* Descriptors that are passed to others. */
#include "env.h"

#include <sys/syscall.h>

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
