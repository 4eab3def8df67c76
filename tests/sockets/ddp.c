/* The socket option by which a program asks for DDP: Weft's, and without Weft none. */
#include "asked.h"
#include "flow.h"
#include "ready.h"

#include <aio.h>
#include <linux/io_uring.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static struct weft_ddp status_of(int fd)
{
	struct weft_ddp status = {77, 77, 77};
	socklen_t length = sizeof(status);

	EQ(getsockopt(fd, SOL_WEFT, WEFT_SO_DDP, &status, &length), 0);
	EQ(length, sizeof(status));
	return status;
}

#define STANDS(fd, its_mode, its_state, its_reason)                                                                    \
	do {                                                                                                           \
		struct weft_ddp status_ = status_of(fd);                                                               \
		EQ(status_.mode, its_mode);                                                                            \
		EQ(status_.state, its_state);                                                                          \
		EQ(status_.reason, its_reason);                                                                        \
	} while (0)

#define UNDECIDED(fd, mode) STANDS(fd, mode, WEFT_DDP_STATE_UNDECIDED, WEFT_DDP_REASON_NONE)

static int accepted(int listener)
{
	int fd = accept(listener, NULL, NULL);

	NEED(fd >= 0);
	return fd;
}

static int connects(int fd, int listener)
{
	struct name at = name_of(listener);

	return connect(fd, &at.any, at.length);
}

SOCKETS("ddp.the-option-is-none-of-the-kernels")
{
	int fd = a_socket(kind), value = 0;
	socklen_t length = sizeof(value);

	if (hooked() && (kind == TCP4 || kind == TCP6))
		SKIP("Weft has it");
	EQ(ask(fd, WEFT_DDP_PREFER), -1);
	CHECK(errno == ENOPROTOOPT || (kind_family((enum kind)kind) == AF_UNIX && errno == EOPNOTSUPP));
	EQ(getsockopt(fd, SOL_WEFT, WEFT_SO_DDP, &value, &length), -1);
	CHECK(errno == ENOPROTOOPT || errno == EOPNOTSUPP);
	EQ(close(fd), 0);
}

CASE("ddp.what-is-no-socket")
{
	int pair[2];

	FAILS(ask(-1, WEFT_DDP_OFF), EBADF);
	NEED(pipe(pair) == 0);
	FAILS(ask(pair[0], WEFT_DDP_OFF), ENOTSOCK);
	close(pair[0]);
	close(pair[1]);
}

TCPS("ddp.what-is-asked-is-read-back")
{
	need_weft();
	int fd = a_socket(kind);

	UNDECIDED(fd, WEFT_DDP_BY_RULE);
	for (int mode = WEFT_DDP_OFF; mode <= WEFT_DDP_REQUIRE; mode++) {
		EQ(ask(fd, mode), 0);
		UNDECIDED(fd, mode);
	}
	EQ(close(fd), 0);
	/* The next socket of that number has not been asked. */
	EQ(a_socket(kind), fd);
	UNDECIDED(fd, WEFT_DDP_BY_RULE);
}

TCPS("ddp.what-is-no-mode-is-refused")
{
	need_weft();
	int fd = a_socket(kind), mode = WEFT_DDP_PREFER, two[2] = {WEFT_DDP_PREFER, 0};
	socklen_t length = sizeof(mode);

	FAILS(ask(fd, 3), EINVAL);
	FAILS(ask(fd, WEFT_DDP_BY_RULE), EINVAL);
	FAILS(setsockopt(fd, SOL_WEFT, WEFT_SO_DDP, &mode, 3), EINVAL);
	FAILS(setsockopt(fd, SOL_WEFT, WEFT_SO_DDP, &mode, 0), EINVAL);
	FAILS(setsockopt(fd, SOL_WEFT, WEFT_SO_DDP, two, sizeof(two)), EINVAL);
	FAILS(setsockopt(fd, SOL_WEFT, WEFT_SO_DDP, (void *)8, sizeof(mode)), EFAULT);
	FAILS(setsockopt(fd, SOL_WEFT, WEFT_SO_DDP + 1, &mode, sizeof(mode)), ENOPROTOOPT);
	FAILS(getsockopt(fd, SOL_WEFT, WEFT_SO_DDP + 1, &mode, &length), ENOPROTOOPT);
	UNDECIDED(fd, WEFT_DDP_BY_RULE);
	EQ(close(fd), 0);
}

TCPS("ddp.the-answer-is-as-long-as-there-is-room")
{
	need_weft();
	int fd = a_socket(kind), mode = 77, many[5] = {77, 77, 77, 77, 77};
	socklen_t length = sizeof(mode);

	EQ(ask(fd, WEFT_DDP_PREFER), 0);
	EQ(getsockopt(fd, SOL_WEFT, WEFT_SO_DDP, &mode, &length), 0);
	EQ(mode, WEFT_DDP_PREFER);
	EQ(length, sizeof(mode));
	length = sizeof(many);
	EQ(getsockopt(fd, SOL_WEFT, WEFT_SO_DDP, many, &length), 0);
	EQ(length, sizeof(struct weft_ddp));
	EQ(many[3], 77);
	length = 0;
	EQ(getsockopt(fd, SOL_WEFT, WEFT_SO_DDP, many, &length), 0);
	length = (socklen_t)-1;
	FAILS(getsockopt(fd, SOL_WEFT, WEFT_SO_DDP, many, &length), EINVAL);
	length = sizeof(mode);
	FAILS(getsockopt(fd, SOL_WEFT, WEFT_SO_DDP, (void *)8, &length), EFAULT);
	FAILS(getsockopt(fd, SOL_WEFT, WEFT_SO_DDP, &mode, (void *)8), EFAULT);
	EQ(close(fd), 0);
}

TCPS("ddp.once-it-is-connected-or-listens-it-is-too-late")
{
	need_weft();
	int listener = listener_of(kind, WEFT_DDP_OFF), fd = a_socket(kind);

	FAILS(ask(listener, WEFT_DDP_PREFER), EINVAL);
	NEED(connects(fd, listener) == 0);
	FAILS(ask(fd, WEFT_DDP_PREFER), EISCONN);
	int end = accept(listener, NULL, NULL);
	FAILS(ask(end, WEFT_DDP_PREFER), EISCONN);
	EQ(close(end), 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

TCPS("ddp.accepted-sockets-have-the-mode-of-their-listener")
{
	need_weft();
	int listener = listener_of(kind, WEFT_DDP_PREFER);

	STANDS(listener, WEFT_DDP_PREFER, WEFT_DDP_STATE_DDP, WEFT_DDP_REASON_NONE);
	for (int i = 0; i < 2; i++) {
		int fd = a_socket(kind);
		EQ(ask(fd, WEFT_DDP_OFF), 0);
		NEED(connects(fd, listener) == 0);
		int end = i ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : accept(listener, NULL, NULL);
		NEED(end >= 0);
		STANDS(fd, WEFT_DDP_OFF, WEFT_DDP_STATE_TCP, WEFT_DDP_REASON_OFF);
		/* What the other end is shows with its first octets. */
		STANDS(end, WEFT_DDP_PREFER, WEFT_DDP_STATE_DDP, WEFT_DDP_REASON_NONE);
		talks(fd, end);
		STANDS(end, WEFT_DDP_PREFER, WEFT_DDP_STATE_TCP, WEFT_DDP_REASON_NOT_THERE);
		talks(end, fd);
		EQ(close(end), 0);
		EQ(close(fd), 0);
	}
	EQ(close(listener), 0);
}

TCPS("ddp.the-rules-decide-where-nobody-asked")
{
	need_weft();
	const char *rules = getenv("WEFT_DDP");

	if (!rules || (strcmp(rules, "off") != 0 && strcmp(rules, "prefer") != 0))
		SKIP("there is no such rule");
	struct ends e = ends_of(kind);

	talks(e.a, e.b);
	if (strcmp(rules, "off") == 0) {
		STANDS(e.a, WEFT_DDP_OFF, WEFT_DDP_STATE_TCP, WEFT_DDP_REASON_OFF);
		STANDS(e.b, WEFT_DDP_OFF, WEFT_DDP_STATE_TCP, WEFT_DDP_REASON_OFF);
	} else {
		/* Both ends are Weft; on a busy machine a client may not have heard so in time. */
		struct weft_ddp a = status_of(e.a), b = status_of(e.b);
		EQ(a.mode, WEFT_DDP_PREFER);
		EQ(a.reason, a.state == WEFT_DDP_STATE_DDP ? WEFT_DDP_REASON_NONE : WEFT_DDP_REASON_NOT_THERE);
		SAME(&a, &b, sizeof(a));
	}
	ends_close(e);
}

TCPS("ddp.what-is-required-at-both-ends-is-done")
{
	need_weft();
	int listener = listener_of(kind, WEFT_DDP_REQUIRE), fd = a_socket(kind);
	struct flow out = {1, 0}, in = out, back = {2, 0}, back_in = back;

	EQ(ask(fd, WEFT_DDP_REQUIRE), 0);
	NEED(connects(fd, listener) == 0);
	NEED(flow_send(&out, fd, 3000));
	int end = accepted(listener);
	NEED(flow_recv(&in, end, 3000));
	STANDS(fd, WEFT_DDP_REQUIRE, WEFT_DDP_STATE_DDP, WEFT_DDP_REASON_NONE);
	STANDS(end, WEFT_DDP_REQUIRE, WEFT_DDP_STATE_DDP, WEFT_DDP_REASON_NONE);
	NEED(flow_send(&back, end, 100000) && flow_recv(&back_in, fd, 100000));
	FAILS(ask(fd, WEFT_DDP_OFF), EISCONN);
	ends_close((struct ends){.a = fd, .b = end});
	EQ(close(listener), 0);
}

/* A peer that does not ask has its octets at once, whoever begins. */
TCPS("ddp.a-client-that-does-not-ask-is-served")
{
	need_weft();
	int listener = listener_of(kind, WEFT_DDP_REQUIRE);

	for (int begins = 0; begins < 2; begins++) {
		struct ends e = {.a = a_socket(kind)};
		EQ(ask(e.a, WEFT_DDP_OFF), 0);
		NEED(connects(e.a, listener) == 0);
		e.b = accepted(listener);
		if (begins)
			talks(e.a, e.b);
		talks(e.b, e.a);
		talks(e.a, e.b);
		flow_both_ways(e);
		ends_close(e);
	}
	EQ(close(listener), 0);
}

/* Many connections, one behind the other on one number: an epoll is told of octets and of nothing else. */
TCPS("ddp.a-set-is-told-of-octets-alone")
{
	need_weft();
	/* Its waits are counted in milliseconds. */
	calm();
	int listener = listener_of(kind, WEFT_DDP_REQUIRE), set = epoll_create1(0);

	for (int i = 0; i < 60; i++) {
		struct ends e = {.a = a_socket(kind)};
		struct epoll_event wanted = {.events = EPOLLIN, .data.fd = 1}, found;
		char got[8];

		EQ(ask(e.a, WEFT_DDP_REQUIRE), 0);
		set_nonblocking(e.a, true);
		NEED(connects(e.a, listener) == 0 || errno == EINPROGRESS);
		EQ(epoll_ctl(set, EPOLL_CTL_ADD, e.a, &wanted), 0);
		e.b = accepted(listener);
		/* What answers the start is none of the program's. */
		EQ(epoll_wait(set, &found, 1, i % 4), 0);
		EQ(send(e.b, "word", 4, 0), 4);
		EQ(epoll_wait(set, &found, 1, (int)(patience * 1000)), 1);
		EQ(recv(e.a, got, 8, 0), 4);
		ends_close(e);
	}
	EQ(close(set), 0);
	EQ(close(listener), 0);
}

TCPS("ddp.a-connection-that-is-dissolved-is-asked-again")
{
	need_weft();
	int listener = listener_of(kind, WEFT_DDP_OFF), fd = a_socket(kind);
	struct sockaddr none = {.sa_family = AF_UNSPEC};

	EQ(ask(fd, WEFT_DDP_OFF), 0);
	NEED(connects(fd, listener) == 0);
	EQ(connect(fd, &none, sizeof(none)), 0);
	EQ(ask(fd, WEFT_DDP_PREFER), 0);
	NEED(connects(fd, listener) == 0);
	STANDS(fd, WEFT_DDP_PREFER, WEFT_DDP_STATE_TCP, WEFT_DDP_REASON_NOT_THERE);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

static void has_the_mode(void *of)
{
	int fd = *(int *)of;

	UNDECIDED(fd, WEFT_DDP_PREFER);
	EQ(ask(fd, WEFT_DDP_OFF), 0);
	UNDECIDED(fd, WEFT_DDP_OFF);
}

TCPS("ddp.copies-of-a-descriptor-are-one-socket")
{
	need_weft();
	int fd = a_socket(kind), pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	EQ(ask(fd, WEFT_DDP_PREFER), 0);
	int copy = dup(fd), bare = (int)syscall(SYS_dup, fd);
	int far = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	UNDECIDED(copy, WEFT_DDP_PREFER);
	UNDECIDED(bare, WEFT_DDP_PREFER);
	if (far >= 0)
		UNDECIDED(far, WEFT_DDP_PREFER);
	CHECK(in_child(has_the_mode, &fd));
	EQ(ask(copy, WEFT_DDP_OFF), 0);
	UNDECIDED(fd, WEFT_DDP_OFF);
	EQ(close(fd), 0);
	UNDECIDED(bare, WEFT_DDP_OFF);
	EQ(close_range((unsigned)copy, ~0U, 0), 0);
	EQ(a_socket(kind), fd);
	UNDECIDED(fd, WEFT_DDP_BY_RULE);
}

static void by_stream(int fd)
{
	NEED(fdopen(fd, "r+"));
}

static void by_print(int fd)
{
	/* It is not connected. */
	signal(SIGPIPE, SIG_IGN);
	EQ(dprintf(fd, "x"), -1);
}

static void by_aio(int fd)
{
	static char octet;
	static struct aiocb request;

	request = (struct aiocb){.aio_fildes = fd,
				 .aio_buf = &octet,
				 .aio_nbytes = 1,
				 .aio_sigevent.sigev_notify = SIGEV_NONE};
	NEED(aio_read(&request) == 0);
	for (double end = deadline(); aio_error(&request) == EINPROGRESS && now() < end;)
		sleep_ms(1);
	EQ(aio_error(&request), ENOTCONN);
}

static void by_number(int fd)
{
	char octet;

	FAILS(syscall(SYS_read, fd, &octet, 1), ENOTCONN);
}

static void goes_as_tcp_when_used(long kind, void (*use)(int))
{
	need_weft();
	int listener = listener_of(kind, WEFT_DDP_OFF), fd = a_socket(kind);

	EQ(ask(fd, WEFT_DDP_PREFER), 0);
	use(fd);
	NEED(connects(fd, listener) == 0);
	STANDS(fd, WEFT_DDP_PREFER, WEFT_DDP_STATE_TCP, WEFT_DDP_REASON_RELEASED);
	int end = accept(listener, NULL, NULL);
	talks(fd, end);
	EQ(close(end), 0);
	EQ(close(listener), 0);
}

TCPS("ddp.a-stream-of-the-c-librarys-goes-as-tcp")
{
	goes_as_tcp_when_used(kind, by_stream);
}

TCPS("ddp.what-is-printed-to-goes-as-tcp")
{
	goes_as_tcp_when_used(kind, by_print);
}

TCPS("ddp.what-aio-reads-goes-as-tcp")
{
	goes_as_tcp_when_used(kind, by_aio);
}

TCPS("ddp.what-is-read-by-its-number-goes-as-tcp")
{
	goes_as_tcp_when_used(kind, by_number);
}

/* --- accepted where no hook sees which descriptor it gets */

/* A client that would rather have DDP is served as TCP, and its first octets are the first that the server reads. */
static void is_served_as_tcp(long kind, int listener, int (*accepts)(int))
{
	struct ends e = {.a = a_socket(kind)};

	EQ(ask(e.a, WEFT_DDP_PREFER), 0);
	NEED(connects(e.a, listener) == 0);
	NEED((e.b = accepts(listener)) >= 0);
	talks(e.a, e.b);
	talks(e.b, e.a);
	STANDS(e.a, WEFT_DDP_PREFER, WEFT_DDP_STATE_TCP, WEFT_DDP_REASON_NOT_THERE);
	ends_close(e);
}

static int by_bare_accept4(int listener)
{
	return (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);
}

static int by_bare_accept(int listener)
{
	return (int)syscall(SYS_accept, listener, NULL, NULL);
}

static void accepts_bare(long kind, int (*accepts)(int))
{
	need_weft();
	int listener = listener_of(kind, WEFT_DDP_PREFER);

	/* As a server does that is told of none yet. */
	set_nonblocking(listener, true);
	FAILS(accepts(listener), EAGAIN);
	STANDS(listener, WEFT_DDP_PREFER, WEFT_DDP_STATE_TCP, WEFT_DDP_REASON_RELEASED);
	is_served_as_tcp(kind, listener, accepts);
	EQ(close(listener), 0);
}

TCPS("ddp.what-a-bare-accept-takes-is-tcp")
{
	accepts_bare(kind, by_bare_accept);
}

TCPS("ddp.what-a-bare-accept4-takes-is-tcp")
{
	accepts_bare(kind, by_bare_accept4);
}

/* Where DDP is required, and of what is no listener, nothing changes. */
TCPS("ddp.a-bare-accept-changes-nothing-else")
{
	need_weft();
	int listener = listener_of(kind, WEFT_DDP_REQUIRE);
	struct ends e = {.a = a_socket(kind)};

	set_nonblocking(listener, true);
	FAILS(by_bare_accept(listener), EAGAIN);
	STANDS(listener, WEFT_DDP_REQUIRE, WEFT_DDP_STATE_DDP, WEFT_DDP_REASON_NONE);
	EQ(ask(e.a, WEFT_DDP_REQUIRE), 0);
	NEED(connects(e.a, listener) == 0 && is_readable(listener));
	e.b = accepted(listener);
	talks(e.a, e.b);
	FAILS(by_bare_accept(e.b), EINVAL);
	STANDS(e.b, WEFT_DDP_REQUIRE, WEFT_DDP_STATE_DDP, WEFT_DDP_REASON_NONE);
	talks(e.b, e.a);
	ends_close(e);
	EQ(close(listener), 0);
}

/* The system call as liburing makes it: past the C library too. */
static int made_ring(bool is_inline)
{
	struct io_uring_params parameters = {};

	if (!is_inline)
		return (int)syscall(SYS_io_uring_setup, 8, &parameters);
#ifdef __x86_64__
	long made;
	__asm__ volatile("syscall"
			 : "=a"(made)
			 : "a"(SYS_io_uring_setup), "D"(8L), "S"(&parameters)
			 : "rcx", "r11", "memory");
	errno = made < 0 ? (int)-made : 0;
	return made < 0 ? -1 : (int)made;
#else
	SKIP("a system call is made by hand on x86-64 only");
#endif
}

static void needs_ring(int ring)
{
	if (ring < 0 && (errno == ENOSYS || errno == EPERM))
		SKIP("the kernel refuses io_uring (%s)", strerror(errno));
	NEED(ring >= 0);
}

struct later {
	long kind;
	struct name name;
	int go[2];
};

/* A client of another process, which has no ring; it connects when it is told to. */
static void child_would_rather_have_ddp(void *of)
{
	struct later *l = of;
	int fd = a_socket(l->kind);
	char got[8];

	EQ(read(l->go[0], got, 1), 1);
	EQ(ask(fd, WEFT_DDP_PREFER), 0);
	NEED(connect(fd, &l->name.any, l->name.length) == 0);
	EQ(send(fd, "word", 4, 0), 4);
	EQ(recv(fd, got, 8, 0), 4);
	STANDS(fd, WEFT_DDP_PREFER, WEFT_DDP_STATE_TCP, WEFT_DDP_REASON_NOT_THERE);
}

/* What a ring accepts has a descriptor that no hook saw made, which this copy stands for. */
static int accepted_unseen(int listener)
{
	int fd = accepted(listener), copy = (int)syscall(SYS_dup, fd);

	NEED(copy >= 0);
	EQ(close(fd), 0);
	return copy;
}

enum ring { MADE_BY_SYSCALL, MADE_BY_ITSELF, MADE_BEFORE };

static void a_server_with_a_ring(long both)
{
	need_weft();
	enum ring how = (enum ring)(both / 2);
	struct later l = {.kind = both % 2 ? TCP6 : TCP4};
	int listener = a_bound(l.kind), ring = -1;
	char got[8];

	NEED(pipe(l.go) == 0 && ask(listener, WEFT_DDP_PREFER) == 0);
	l.name = name_of(listener);
	pid_t client = start_child(child_would_rather_have_ddp, &l);
	if (how != MADE_BEFORE)
		NEED(listen(listener, 8) == 0);
	ring = made_ring(how != MADE_BY_SYSCALL);
	if (ring < 0)
		kill(client, SIGKILL);
	needs_ring(ring);
	if (how == MADE_BEFORE)
		NEED(listen(listener, 8) == 0);
	/* A ring that no hook saw made is found within a tenth of a second; so long it takes to answer at all, at most. */
	sleep_ms(150);
	EQ(write(l.go[1], "", 1), 1);
	int end = accepted_unseen(listener);
	EQ(recv(end, got, 8, 0), 4);
	SAME(got, "word", 4);
	EQ(send(end, "back", 4, 0), 4);
	CHECK(child_ended_well(client));
	EQ(close(end), 0);
	EQ(close(ring), 0);
	EQ(close(listener), 0);
}

CASES
{
	static const char *const ways[] = {"made-by-syscall", "made-by-itself", "made-before-it-listens"};

	for (long i = 0; i < 6; i++)
		ADD(a_server_with_a_ring, i, "tcp%d.ddp.a-server-with-a-ring-%s-is-tcp", i % 2 ? 6 : 4, ways[i / 2]);
}

/* --- closed while the peer takes nothing */

static int numbers_open(void)
{
	int count = 0;

	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* An eighth of the descriptors is held for peers that take nothing, and the first of them are reset. What was sent
   before a program accepts is kept until it does. */
TCPS("ddp.peers-that-take-nothing-hold-an-eighth-of-the-descriptors")
{
	need_weft();
	enum { PEERS = 40, MOST = 256 / 8, SENT = 1000 };
	struct rlimit limit = {256, 256};
	int listener = listener_of(kind, WEFT_DDP_REQUIRE), before = 0;
	static char octets[SENT];

	EQ(listen(listener, 2 * PEERS), 0);
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (int i = 0; i < PEERS; i++) {
		int fd = a_socket(kind);
		EQ(ask(fd, WEFT_DDP_REQUIRE), 0);
		NEED(connects(fd, listener) == 0);
		EQ(send(fd, octets, SENT, 0), SENT);
		if (i == 0)
			before = numbers_open() - 1;
		EQ(close(fd), 0);
	}
	/* And a few that come and go. */
	int held = numbers_open() - before;
	CHECK(held > MOST / 2 && held <= MOST + 3);
	int resets = 0;
	for (int i = 0; i < PEERS; i++) {
		ssize_t got, sum = 0;
		int end = accepted(listener);
		while ((got = recv(end, octets, SENT, 0)) > 0)
			sum += got;
		resets += got < 0 && errno == ECONNRESET;
		/* Those that came last have all. */
		if (i >= PEERS - MOST / 2) {
			EQ(got, 0);
			EQ(sum, SENT);
		}
		EQ(close(end), 0);
	}
	CHECK(resets > 0 && resets <= PEERS - MOST + 1);
	EQ(close(listener), 0);
}

/* --- what an epoll, a number and a copy of a connection stand for */

/* Two entries of one set with the same word, as of a program that asks each socket itself. */
TCPS("ddp.a-set-tells-of-a-pipe-beside-an-idle-connection")
{
	need_weft();
	int listener = listener_of(kind, WEFT_DDP_REQUIRE), set = a_poll(), pair[2];
	struct ends e = {.a = a_socket(kind)};
	struct epoll_event same = {.events = EPOLLIN}, found;

	EQ(ask(e.a, WEFT_DDP_OFF), 0);
	NEED(connects(e.a, listener) == 0 && pipe(pair) == 0);
	e.b = accepted(listener);
	EQ(epoll_ctl(set, EPOLL_CTL_ADD, e.b, &same), 0);
	EQ(epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &same), 0);
	EQ(events_of(set, &found, QUIET), 0);
	EQ(write(pair[1], "x", 1), 1);
	EQ(events_of(set, &found, patience), 1);
	close(pair[0]);
	close(pair[1]);
	EQ(close(set), 0);
	ends_close(e);
	EQ(close(listener), 0);
}

/* What a peer that asks for DDP sends first: MPA revision 1, with the 40 octets that say where it may be written to. */
static void send_request(int fd)
{
	static const unsigned char request[60] = {
		'M', 'P', 'A', ' ', 'I', 'D', ' ', 'R', 'e', 'q', ' ', 'F', 'r', 'a', 'm', 'e', 0, 1, 0, 40,
		1, 0, 0, 100, 0, 0, 0, 0, [34] = 0x90, [39] = 3, [43] = 2, [50] = 0x10, [55] = 2, [57] = 16};

	EQ(send(fd, request, sizeof(request), 0), (ssize_t)sizeof(request));
}

/* An epoll goes on with a socket whose number was closed while a copy is open. */
TCPS("ddp.a-set-does-not-take-a-number-for-the-socket-that-had-it")
{
	need_weft();
	int listener = listener_of(kind, WEFT_DDP_REQUIRE), set = a_poll();
	struct ends first = {.a = a_socket(kind)}, second = {.a = a_socket(kind)};
	struct epoll_event found;
	char got[20];

	EQ(ask(first.a, WEFT_DDP_OFF), 0);
	EQ(ask(second.a, WEFT_DDP_OFF), 0);
	NEED(connects(first.a, listener) == 0);
	first.b = accepted(listener);
	watch(set, first.b, EPOLLIN);
	int copy = dup(first.b);
	EQ(close(first.b), 0);
	NEED(connects(second.a, listener) == 0);
	EQ(second.b = accepted(listener), first.b);
	EQ(send(second.a, "second", 6, 0), 6);
	NEED(wait_for(second.b, POLLIN, patience));
	send_request(first.a);
	events_of(set, &found, QUIET);
	FAILS(recv(copy, got, sizeof(got), MSG_DONTWAIT), EAGAIN);
	EQ(recv(first.a, got, 16, MSG_WAITALL), 16);
	SAME(got, "MPA ID Rep Frame", 16);
	EQ(recv(second.b, got, sizeof(got), 0), 6);
	SAME(got, "second", 6);
	first.b = copy;
	EQ(close(set), 0);
	ends_close(first);
	ends_close(second);
	EQ(close(listener), 0);
}

/* Over DDP at both ends; b has not been asked for yet, so that what a sends first waits. */
static struct ends not_yet_accepted(long kind, int *listener)
{
	struct ends e = {.a = a_socket(kind)};

	*listener = listener_of(kind, WEFT_DDP_REQUIRE);
	EQ(ask(e.a, WEFT_DDP_REQUIRE), 0);
	NEED(connects(e.a, *listener) == 0);
	EQ(send(e.a, "hello world", 11, 0), 11);
	return e;
}

static void is_overwritten(int fd, bool by_dup3)
{
	int none = open("/dev/null", O_RDONLY);

	/* These fail, and the connection is as it was. */
	FAILS(dup2(-1, fd), EBADF);
	FAILS(dup3(none, fd, 1), EINVAL);
	EQ(by_dup3 ? dup3(none, fd, O_CLOEXEC) : dup2(none, fd), fd);
	EQ(close(none), 0);
}

TCPS("ddp.what-waits-in-a-number-that-is-overwritten-arrives")
{
	need_weft();
	for (int by_dup3 = 0; by_dup3 < 2; by_dup3++) {
		int listener;
		struct ends e = not_yet_accepted(kind, &listener);
		char got[20];

		is_overwritten(e.a, by_dup3);
		e.b = accepted(listener);
		EQ(recv(e.b, got, 11, MSG_WAITALL), 11);
		SAME(got, "hello world", 11);
		EQ(recv(e.b, got, 1, 0), 0);
		ends_close(e);
		EQ(close(listener), 0);
	}
}

/* What a full socket has not taken yet leaves, though the number is closed by which it was written. */
TCPS("ddp.what-was-written-by-a-copy-leaves-when-it-is-closed")
{
	need_weft();
	const char *rules = getenv("WEFT_DDP");

	if (!rules || strcmp(rules, "require") != 0)
		SKIP("the connection is not over DDP for sure");
	for (size_t piece = 700; piece <= 1500; piece += 400) {
		struct ends e = tight_ends(kind);
		struct flow out = {1, 0}, in = out;
		char octets[1500];
		ssize_t got;

		NEED(flow_send(&out, e.a, 1) && flow_recv(&in, e.b, 1));
		int copy = dup(e.a);
		do {
			struct flow next = out;
			flow_next(&next, octets, piece);
			got = send(copy, octets, piece, MSG_DONTWAIT);
			out.at += got > 0 ? (uint64_t)got : 0;
		} while (got > 0);
		EQ(close(copy), 0);
		CHECK(flow_recv(&in, e.b, out.at - 1));
		ends_close(e);
	}
}
