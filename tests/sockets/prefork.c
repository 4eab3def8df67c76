/* Servers of several processes: a child for each connection, children that accept from one listener; and a connection
   that is passed to a process that was there before it. */
#include "flow.h"
#include "ready.h"

#include <sys/syscall.h>

/* What a server gives back: what it gets, until that ends. */
static void echo(int fd)
{
	char octets[3000];
	ssize_t got;

	while ((got = recv(fd, octets, sizeof(octets), 0)) > 0)
		NEED(send_all(fd, octets, (size_t)got));
	EQ(got, 0);
	EQ(close(fd), 0);
}

static void asks(int fd, unsigned seed, size_t length)
{
	struct flow out = {seed, 0}, in = out;

	while (out.at < length) {
		NEED(flow_send(&out, fd, 1 + any_below(&seed, 2000)));
		NEED(flow_recv(&in, fd, out.at - in.at));
	}
	EQ(wait_for(fd, POLLIN, 0), 0);
	EQ(shutdown(fd, SHUT_WR), 0);
	CHECK(flow_recv_to_the_end(&in, fd));
	EQ(in.at, out.at);
	EQ(close(fd), 0);
}

static void asks_several(long kind, struct name name, int count)
{
	int fds[8];

	NEED(count <= 8);
	/* All are open before the first is asked: it may be any child's. */
	for (int i = 0; i < count; i++) {
		fds[i] = a_socket(kind);
		NEED(connect(fds[i], &name.any, name.length) == 0);
	}
	/* In their order: fewer servers than connections take them so. */
	for (int i = 0; i < count; i++)
		asks(fds[i], (unsigned)i, 5000);
}

struct asking {
	long kind;
	struct name name;
	int count;
};

static void child_asks(void *of)
{
	struct asking *a = of;

	asks_several(a->kind, a->name, a->count);
}

TCPS("prefork.a-child-for-each-connection")
{
	int listener = a_listener(kind, 8);
	struct asking a = {kind, name_of(listener), 6};
	pid_t children[6], client = start_child(child_asks, &a);

	for (int i = 0; i < 6; i++) {
		int fd = accept(listener, NULL, NULL);
		NEED(fd >= 0);
		children[i] = fork();
		NEED(children[i] >= 0);
		if (children[i] == 0) {
			EQ(close(listener), 0);
			echo(fd);
			_exit(0);
		}
		EQ(close(fd), 0);
	}
	CHECK(child_ended_well(client));
	for (int i = 0; i < 6; i++)
		CHECK(child_ended_well(children[i]));
	EQ(close(listener), 0);
}

TCPS("prefork.the-parent-reads-the-request-and-a-child-answers")
{
	int listener = a_listener(kind, 8), fd = a_socket(kind);
	struct name name = name_of(listener);
	struct flow out = {1, 0}, in = out, back = {2, 0};
	int status;

	NEED(connect(fd, &name.any, name.length) == 0);
	NEED(flow_send(&out, fd, 100) && flow_send(&out, fd, 900));
	int end = accept(listener, NULL, NULL);
	NEED(end >= 0 && flow_recv(&in, end, 130));
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		NEED(flow_recv(&in, end, 870));
		NEED(flow_send(&back, end, 50000));
		_exit(0);
	}
	EQ(close(end), 0);
	/* Its end is the child's. */
	CHECK(flow_recv_to_the_end(&back, fd));
	EQ(back.at, 50000);
	EQ(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)), child);
	EQ(status, 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

/* --- children that accept */

enum accepting { BY_ACCEPT, BY_POLL, BY_EPOLL, BY_EPOLL_EXCLUSIVE };

static void accepts(int listener, enum accepting how)
{
	int set = how >= BY_EPOLL ? a_poll() : -1;

	if (how >= BY_EPOLL)
		watch(set, listener, EPOLLIN | (how == BY_EPOLL_EXCLUSIVE ? EPOLLEXCLUSIVE : 0));
	for (;;) {
		if (how == BY_POLL)
			wait_for(listener, POLLIN, patience);
		else if (how >= BY_EPOLL)
			events_of(set, NULL, patience);
		int fd = accept(listener, NULL, NULL);
		/* Another may have been quicker. */
		if (fd < 0 && errno == EAGAIN)
			continue;
		NEED(fd >= 0);
		echo(fd);
	}
}

static void several_accept(long both)
{
	enum { CHILDREN = 3 };
	long kind = both % 2 ? TCP6 : TCP4;
	enum accepting how = (enum accepting)(both / 2);
	int listener = a_listener(kind, 16);
	struct asking a = {kind, name_of(listener), 8};
	pid_t children[CHILDREN], clients[2];

	set_nonblocking(listener, how != BY_ACCEPT);
	for (int i = 0; i < CHILDREN; i++) {
		children[i] = fork();
		NEED(children[i] >= 0);
		if (children[i] == 0)
			accepts(listener, how);
	}
	EQ(close(listener), 0);
	for (int i = 0; i < 2; i++)
		clients[i] = start_child(child_asks, &a);
	for (int i = 0; i < 2; i++)
		CHECK(child_ended_well(clients[i]));
	for (int i = 0; i < CHILDREN; i++) {
		int status;
		EQ(kill(children[i], SIGKILL), 0);
		EQ(TEMP_FAILURE_RETRY(waitpid(children[i], &status, 0)), children[i]);
		CHECK(WIFSIGNALED(status));
	}
}

CASES
{
	static const char *const names[] = {"accept", "poll", "epoll", "epoll-exclusively"};

	for (long i = 0; i < 8; i++)
		ADD(several_accept, i, "tcp%d.prefork.children-wait-by-%s", i % 2 ? 6 : 4, names[i / 2]);
}

/* --- passed to a process that was there before the connection */

enum passing { BY_SENDMSG, BY_SENDMMSG, BY_BARE_SENDMSG, BY_BARE_SENDMMSG, PASSINGS };

/* What one message may carry (SCM_MAX_FD). */
enum { MOST_AT_ONCE = 253 };

static void send_passing(int over, struct mmsghdr *one, enum passing how)
{
	switch (how) {
	case BY_SENDMMSG: NEED(sendmmsg(over, one, 1, 0) == 1); break;
	case BY_BARE_SENDMSG: NEED(syscall(SYS_sendmsg, over, &one->msg_hdr, 0) == 1); break;
	case BY_BARE_SENDMMSG: NEED(syscall(SYS_sendmmsg, over, one, 1, 0) == 1); break;
	default: NEED(sendmsg(over, &one->msg_hdr, 0) == 1);
	}
}

/* With so many copies of standard input before it. */
static void pass_behind(int over, int fd, int others, enum passing how)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(MOST_AT_ONCE * sizeof(int))];
	} control = {.head = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
			      .cmsg_len = CMSG_LEN((size_t)(others + 1) * sizeof(int))}};
	struct iovec out = {"p", 1};
	struct mmsghdr one = {.msg_hdr = {.msg_iov = &out, .msg_iovlen = 1, .msg_control = &control,
					  .msg_controllen = CMSG_SPACE((size_t)(others + 1) * sizeof(int))}};
	int fds[MOST_AT_ONCE] = {};

	fds[others] = fd;
	memcpy(CMSG_DATA(&control.head), fds, (size_t)(others + 1) * sizeof(int));
	send_passing(over, &one, how);
}

static void pass(int over, int fd)
{
	pass_behind(over, fd, 0, BY_SENDMSG);
}

/* The last of those that came. */
static int taken(int over)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(MOST_AT_ONCE * sizeof(int))];
	} control;
	char octet;
	struct iovec in = {&octet, 1};
	struct msghdr msg = {.msg_iov = &in, .msg_iovlen = 1, .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	int fds[MOST_AT_ONCE];

	NEED(recvmsg(over, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg));
	size_t octets = control.head.cmsg_len - CMSG_LEN(0);
	NEED(octets >= sizeof(int) && octets <= sizeof(fds));
	memcpy(fds, CMSG_DATA(&control.head), octets);
	return fds[octets / sizeof(int) - 1];
}

static void child_takes_a_connection(void *of)
{
	int over = *(int *)of, fd = taken(over), there = 0;
	struct flow in = {3, 100}, out = {4, 0};

	/* From where the other stopped, with what else had come. */
	EQ(ioctl(fd, FIONREAD, &there), 0);
	EQ(there, 200);
	NEED(wait_for(fd, POLLIN, 0) == POLLIN);
	NEED(flow_recv(&in, fd, 150));
	NEED(flow_send(&out, fd, 500));
	NEED(write(over, "", 1) == 1);
	/* It keeps its end open until the other used it once more. */
	char octet;
	EQ(read(over, &octet, 1), 1);
}

TCPS("passed.in-the-middle-to-a-process-that-was-there-before")
{
	int over[2];
	char octet;

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, over) == 0);
	pid_t child = start_child(child_takes_a_connection, &over[1]);
	struct ends e = ends_of(kind);
	struct flow out = {3, 0}, in = out, back = {4, 0};
	NEED(flow_send(&out, e.a, 300) && octets_come(e.b, 300) && flow_recv(&in, e.b, 100));
	pass(over[0], e.b);
	NEED(flow_recv(&back, e.a, 500));
	EQ(read(over[0], &octet, 1), 1);
	/* Both have it: this one goes on where the other stopped. */
	in.at = 250;
	NEED(flow_recv(&in, e.b, 50));
	flow_both_ways(e);
	EQ(write(over[0], "", 1), 1);
	CHECK(child_ended_well(child));
	flow_both_ways(e);
	ends_close(e);
	EQ(close(over[0]), 0);
	EQ(close(over[1]), 0);
}

static void child_serves_what_is_passed(void *of)
{
	for (int i = 0; i < 4; i++)
		echo(taken(*(int *)of));
}

TCPS("passed.accepted-ones-to-a-worker")
{
	int over[2], listener = a_listener(kind, 8);
	struct asking a = {kind, name_of(listener), 4};

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, over) == 0);
	pid_t worker = start_child(child_serves_what_is_passed, &over[1]);
	/* Asked one after the other in the order of the passing, as the worker has one at a time. */
	pid_t client = fork();
	NEED(client >= 0);
	if (client == 0) {
		for (int i = 0; i < a.count; i++)
			asks_several(kind, a.name, 1);
		_exit(0);
	}
	for (int i = 0; i < a.count; i++) {
		int fd = accept(listener, NULL, NULL);
		NEED(fd >= 0);
		pass(over[0], fd);
		EQ(close(fd), 0);
	}
	CHECK(child_ended_well(client));
	CHECK(child_ended_well(worker));
	EQ(close(listener), 0);
	EQ(close(over[0]), 0);
	EQ(close(over[1]), 0);
}

/* --- passed by every call there is, and closed by who passed it before the other looks */

static void child_answers_on_what_is_passed(void *of)
{
	int *over = of, fd = taken(over[1]);
	struct flow in = {5, 100}, out = {6, 0};
	char octet;

	/* Until the other has closed its own. */
	EQ(read(over[1], &octet, 1), 1);
	NEED(flow_recv(&in, fd, 200));
	NEED(flow_send(&out, fd, 400));
}

static void is_passed(long kind, int others, enum passing how)
{
	int over[2];

	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, over) == 0);
	/* It is there before the connection, which is not inherited. */
	pid_t child = start_child(child_answers_on_what_is_passed, over);
	struct ends e = ends_of(kind);
	struct flow out = {5, 0}, in = out, back = {6, 0};

	NEED(flow_send(&out, e.a, 300) && octets_come(e.b, 300) && flow_recv(&in, e.b, 100));
	pass_behind(over[0], e.b, others, how);
	EQ(close(e.b), 0);
	EQ(write(over[0], "", 1), 1);
	NEED(flow_recv(&back, e.a, 400));
	CHECK(child_ended_well(child));
	EQ(close(e.a), 0);
	EQ(close(over[0]), 0);
	EQ(close(over[1]), 0);
}

static void passed_by(long both)
{
	is_passed(both % 2 ? TCP6 : TCP4, 0, (enum passing)(both / 2));
}

CASES
{
	static const char *const names[] = {"sendmsg", "sendmmsg", "a-bare-sendmsg", "a-bare-sendmmsg"};

	for (long i = 0; i < 2 * PASSINGS; i++)
		ADD(passed_by, i, "tcp%d.passed.by-%s", i % 2 ? 6 : 4, names[i / 2]);
}

TCPS("passed.as-the-last-of-as-many-as-there-can-be")
{
	is_passed(kind, MOST_AT_ONCE - 1, BY_SENDMSG);
}
