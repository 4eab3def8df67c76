/* TCP only: connecting without waiting, resets, lingering, urgent octets, options. */
#include "env.h"

static int connecting(long kind, const struct name *to)
{
	int fd = a_socket(kind);

	set_nonblocking(fd, true);
	int result = connect(fd, &to->any, to->length);
	CHECK(result == 0 || errno == EINPROGRESS || errno == ECONNREFUSED);
	return fd;
}

TCPS("connect.without-waiting")
{
	int listener = a_listener(kind, 4);
	struct name name = name_of(listener);
	int fd = connecting(kind, &name);

	EQ(wait_for(fd, POLLOUT, SOON), POLLOUT);
	EQ(get_int(fd, SOL_SOCKET, SO_ERROR), 0);
	/* Linux says once that it is done, then that it was. */
	int again = connect(fd, &name.any, name.length);
	CHECK(again == 0 || errno == EISCONN);
	FAILS(connect(fd, &name.any, name.length), EISCONN);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

TCPS("connect.without-waiting-is-refused")
{
	int listener = a_listener(kind, 4);
	struct name name = name_of(listener);

	EQ(close(listener), 0);
	int fd = connecting(kind, &name);
	int events = wait_for(fd, POLLOUT, SOON);
	CHECK(events & POLLOUT);
	CHECK(events & POLLERR);
	EQ(get_int(fd, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
	/* Told once. */
	EQ(get_int(fd, SOL_SOCKET, SO_ERROR), 0);
	EQ(close(fd), 0);
}

TCPS("connect.refused-tried-again-on-the-same-socket")
{
	int listener = a_listener(kind, 4), fd = a_socket(kind);
	struct name name = name_of(listener);

	EQ(close(listener), 0);
	FAILS(connect(fd, &name.any, name.length), ECONNREFUSED);
	listener = a_socket(kind);
	set_int(listener, SOL_SOCKET, SO_REUSEADDR, 1);
	NEED(bind(listener, &name.any, name.length) == 0 && listen(listener, 1) == 0);
	EQ(connect(fd, &name.any, name.length), 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

TCPS("connect.of-another-family-is-refused")
{
	int fd = a_socket(kind);
	struct name name = loopback(kind == TCP4 ? TCP6 : TCP4);

	name.in.sin_port = htons(9);
	EQ(connect(fd, &name.any, name.length), -1);
	CHECK(errno == EAFNOSUPPORT || errno == EINVAL);
	EQ(close(fd), 0);
}

TCPS("connect.gives-an-ephemeral-port")
{
	struct ends e = ends_of(kind);

	CHECK(port_of(e.a) >= 1024);
	CHECK(port_of(e.a) != port_of(e.b));
	ends_close(e);
}

TCPS("connect.dissolved-by-af_unspec")
{
	struct ends e = ends_of(kind);
	struct sockaddr nothing = {.sa_family = AF_UNSPEC};
	struct name name = {.length = sizeof(name.storage)};

	EQ(connect(e.a, &nothing, sizeof(nothing)), 0);
	FAILS(getpeername(e.a, &name.any, &name.length), ENOTCONN);
	ends_close(e);
}

TCPS("connect.to-itself")
{
	/* A simultaneous open with oneself: the socket is its own peer. */
	int fd = a_bound(kind);
	struct name name = name_of(fd);
	char got[8];

	EQ(connect(fd, &name.any, name.length), 0);
	EQ(send(fd, "self", 4, 0), 4);
	EQ(recv(fd, got, 8, 0), 4);
	EQ(close(fd), 0);
}

CASE("tcp.v4-connects-to-a-v6-listener-of-both")
{
	int listener = a_socket(TCP6);
	struct sockaddr_in6 any = {.sin6_family = AF_INET6};
	struct name from = {.length = sizeof(from.storage)};

	set_int(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	NEED(bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(listener, 1) == 0);
	struct name name = loopback(TCP4);
	name.in.sin_port = htons((uint16_t)port_of(listener));
	int fd = a_socket(TCP4);
	EQ(connect(fd, &name.any, name.length), 0);
	int got = accept(listener, &from.any, &from.length);
	NEED(got >= 0);
	EQ(from.any.sa_family, AF_INET6);
	CHECK(IN6_IS_ADDR_V4MAPPED(&from.in6.sin6_addr));
	EQ(close(got), 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

CASE("tcp.v6-only-refuses-v4")
{
	int listener = a_socket(TCP6), fd = a_socket(TCP4);
	struct sockaddr_in6 any = {.sin6_family = AF_INET6};

	set_int(listener, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	NEED(bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(listener, 1) == 0);
	struct name name = loopback(TCP4);
	name.in.sin_port = htons((uint16_t)port_of(listener));
	FAILS(connect(fd, &name.any, name.length), ECONNREFUSED);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

/* --- resets */

static void reset(int fd)
{
	struct linger now_at_once = {1, 0};

	NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now_at_once, sizeof(now_at_once)) == 0);
	EQ(close(fd), 0);
}

TCPS("reset.while-reading")
{
	struct ends e = ends_of(kind);
	char got[8];

	reset(e.a);
	FAILS(recv(e.b, got, 8, 0), ECONNRESET);
	/* Told once; then it is an ended stream. */
	EQ(recv(e.b, got, 8, 0), 0);
	FAILS(send(e.b, "x", 1, MSG_NOSIGNAL), EPIPE);
	EQ(close(e.b), 0);
}

TCPS("reset.while-writing")
{
	struct ends e = ends_of(kind);

	reset(e.a);
	NEED(wait_for(e.b, POLLIN, SOON));
	FAILS(send(e.b, "x", 1, MSG_NOSIGNAL), ECONNRESET);
	FAILS(send(e.b, "x", 1, MSG_NOSIGNAL), EPIPE);
	EQ(close(e.b), 0);
}

TCPS("reset.in-poll-and-so_error")
{
	struct ends e = ends_of(kind);

	reset(e.a);
	EQ(wait_for(e.b, POLLIN | POLLOUT | POLLRDHUP, SOON),
	   POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP);
	EQ(get_int(e.b, SOL_SOCKET, SO_ERROR), ECONNRESET);
	EQ(get_int(e.b, SOL_SOCKET, SO_ERROR), 0);
	EQ(close(e.b), 0);
}

TCPS("reset.behind-what-was-not-read")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "kept", 4, 0), 4);
	NEED(is_readable(e.b));
	reset(e.a);
	double end = now() + 2;
	while (!(wait_for(e.b, 0, 1) & POLLERR) && now() < end)
		;
	EQ(recv(e.b, got, 8, 0), 4);
	FAILS(recv(e.b, got, 8, 0), ECONNRESET);
	EQ(close(e.b), 0);
}

TCPS("reset.by-closing-with-octets-unread")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "unread", 6, 0), 6);
	NEED(is_readable(e.b));
	EQ(close(e.b), 0);
	FAILS(recv(e.a, got, 8, 0), ECONNRESET);
	EQ(close(e.a), 0);
}

TCPS("linger.is-read-back")
{
	struct ends e = ends_of(kind);
	struct linger set = {1, 7}, got = {};
	socklen_t length = sizeof(got);

	EQ(setsockopt(e.a, SOL_SOCKET, SO_LINGER, &set, sizeof(set)), 0);
	EQ(getsockopt(e.a, SOL_SOCKET, SO_LINGER, &got, &length), 0);
	EQ(got.l_onoff, 1);
	EQ(got.l_linger, 7);
	ends_close(e);
}

TCPS("linger.close-waits-until-it-is-taken")
{
	struct ends e = ends_of(kind);
	struct linger some = {1, 5};
	char got[8];

	EQ(setsockopt(e.a, SOL_SOCKET, SO_LINGER, &some, sizeof(some)), 0);
	EQ(send(e.a, "last", 4, 0), 4);
	double start = now();
	EQ(close(e.a), 0);
	/* The other side's kernel acknowledges at once. */
	CHECK(now() - start < 3);
	EQ(recv(e.b, got, 8, 0), 4);
	EQ(recv(e.b, got, 8, 0), 0);
	EQ(close(e.b), 0);
}

/* --- urgent octets */

TCPS("urgent.apart-from-the-stream")
{
	struct ends e = ends_of(kind);
	char got[8] = "";

	EQ(send(e.a, "ab", 2, 0), 2);
	EQ(send(e.a, "!", 1, MSG_OOB), 1);
	EQ(send(e.a, "cd", 2, 0), 2);
	EQ(wait_for(e.b, POLLPRI, SOON), POLLPRI);
	EQ(recv(e.b, got, 8, MSG_OOB), 1);
	EQ(got[0], '!');
	EQ(sockatmark(e.b), 0);
	/* A read stops at the mark. */
	EQ(recv(e.b, got, 8, 0), 2);
	EQ(sockatmark(e.b), 1);
	NEED(recv_all(e.b, got, 2));
	SAME(got, "cd", 2);
	ends_close(e);
}

TCPS("urgent.none-is-invalid")
{
	struct ends e = ends_of(kind);
	char got[8];

	FAILS(recv(e.b, got, 8, MSG_OOB), EINVAL);
	ends_close(e);
}

TCPS("urgent.inline")
{
	struct ends e = ends_of(kind);
	char got[8] = "";

	set_int(e.b, SOL_SOCKET, SO_OOBINLINE, 1);
	EQ(send(e.a, "ab!", 3, MSG_OOB), 3);
	NEED(is_readable(e.b));
	EQ(recv(e.b, got, 8, 0), 2);
	EQ(recv(e.b, got, 8, 0), 1);
	EQ(got[0], '!');
	ends_close(e);
}

/* --- options */

static const struct {
	const char *name;
	int level, option, set, want;
} options[] = {
	{"nodelay", IPPROTO_TCP, TCP_NODELAY, 1, 1},
	{"cork", IPPROTO_TCP, TCP_CORK, 1, 1},
	{"keepidle", IPPROTO_TCP, TCP_KEEPIDLE, 77, 77},
	{"keepintvl", IPPROTO_TCP, TCP_KEEPINTVL, 33, 33},
	{"keepcnt", IPPROTO_TCP, TCP_KEEPCNT, 5, 5},
	{"syncnt", IPPROTO_TCP, TCP_SYNCNT, 3, 3},
	{"linger2", IPPROTO_TCP, TCP_LINGER2, 20, 20},
	{"quickack", IPPROTO_TCP, TCP_QUICKACK, 0, 0},
	{"user-timeout", IPPROTO_TCP, TCP_USER_TIMEOUT, 3000, 3000},
	{"notsent-lowat", IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384, 16384},
	{"keepalive", SOL_SOCKET, SO_KEEPALIVE, 1, 1},
};

static void option(long both)
{
	long kind = both & 1 ? TCP6 : TCP4, at = both >> 1;
	struct ends e = ends_of(kind);

	set_int(e.a, options[at].level, options[at].option, options[at].set);
	EQ(get_int(e.a, options[at].level, options[at].option), options[at].want);
	/* The connection is none the worse. */
	EQ(send(e.a, "x", 1, 0), 1);
	if (options[at].option == TCP_CORK && options[at].level == IPPROTO_TCP)
		set_int(e.a, IPPROTO_TCP, TCP_CORK, 0);
	CHECK(is_readable(e.b));
	ends_close(e);
}

CASES
{
	for (long i = 0; i < (long)(sizeof(options) / sizeof(*options)); i++)
		for (long six = 0; six < 2; six++)
			ADD(option, 2 * i + six, "tcp%d.option-%s", six ? 6 : 4, options[i].name);
}

TCPS("option.maxseg-is-told")
{
	struct ends e = ends_of(kind);

	CHECK(get_int(e.a, IPPROTO_TCP, TCP_MAXSEG) > 500);
	ends_close(e);
}

TCPS("option.tcp_info")
{
	struct ends e = ends_of(kind);
	struct tcp_info info = {};
	socklen_t length = sizeof(info);

	EQ(getsockopt(e.a, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
	EQ(info.tcpi_state, TCP_ESTABLISHED);
	CHECK(info.tcpi_snd_mss > 0);
	ends_close(e);
}

TCPS("option.congestion-control-is-named")
{
	struct ends e = ends_of(kind);
	char name[16] = "";
	socklen_t length = sizeof(name);

	EQ(getsockopt(e.a, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
	CHECK(name[0]);
	EQ(setsockopt(e.a, IPPROTO_TCP, TCP_CONGESTION, "reno", 4), 0);
	length = sizeof(name);
	EQ(getsockopt(e.a, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
	CHECK(strcmp(name, "reno") == 0);
	ends_close(e);
}

TCPS("option.inherited-by-accept")
{
	int listener = a_listener(kind, 2), fd = a_socket(kind);
	struct name name = name_of(listener);

	set_int(listener, IPPROTO_TCP, TCP_NODELAY, 1);
	set_int(listener, SOL_SOCKET, SO_KEEPALIVE, 1);
	NEED(connect(fd, &name.any, name.length) == 0);
	int got = accept(listener, NULL, NULL);
	NEED(got >= 0);
	EQ(get_int(got, IPPROTO_TCP, TCP_NODELAY), 1);
	EQ(get_int(got, SOL_SOCKET, SO_KEEPALIVE), 1);
	EQ(close(got), 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

TCPS("cork.holds-until-it-is-pulled")
{
	struct ends e = ends_of(kind);
	char got[8];

	set_int(e.a, IPPROTO_TCP, TCP_CORK, 1);
	EQ(send(e.a, "ab", 2, 0), 2);
	CHECK(stays_quiet(e.b));
	EQ(send(e.a, "cd", 2, 0), 2);
	set_int(e.a, IPPROTO_TCP, TCP_CORK, 0);
	NEED(is_readable(e.b));
	EQ(recv(e.b, got, 8, 0), 4);
	ends_close(e);
}

TCPS("msg_more-holds-until-the-next")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "ab", 2, MSG_MORE), 2);
	CHECK(stays_quiet(e.b));
	EQ(send(e.a, "cd", 2, 0), 2);
	NEED(is_readable(e.b));
	EQ(recv(e.b, got, 8, 0), 4);
	ends_close(e);
}

TCPS("outq-tells-what-is-not-acknowledged")
{
	struct ends e = ends_of(kind);
	int there = -1;

	EQ(ioctl(e.a, TIOCOUTQ, &there), 0);
	EQ(there, 0);
	fill_up(e.a);
	EQ(ioctl(e.a, TIOCOUTQ, &there), 0);
	CHECK(there > 0);
	ends_close(e);
}

TCPS("fast-open-connect-is-taken-or-refused")
{
	int listener = a_listener(kind, 2), fd = a_socket(kind);
	struct name name = name_of(listener);
	char got[8];

	ssize_t sent = sendto(fd, "fast", 4, MSG_FASTOPEN, &name.any, name.length);
	if (sent < 0 && errno == EOPNOTSUPP)
		SKIP("fast open is off on this machine (net.ipv4.tcp_fastopen)");
	EQ(sent, 4);
	int end = accept(listener, NULL, NULL);
	NEED(end >= 0);
	NEED(recv_all(end, got, 4));
	EQ(close(end), 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

TCPS("reuseaddr.a-listener-again-at-once")
{
	struct ends e;
	int listener = a_socket(kind);
	struct name name = loopback(kind);

	set_int(listener, SOL_SOCKET, SO_REUSEADDR, 1);
	NEED(bind(listener, &name.any, name.length) == 0 && listen(listener, 2) == 0);
	name = name_of(listener);
	e.a = a_socket(kind);
	NEED(connect(e.a, &name.any, name.length) == 0);
	NEED((e.b = accept(listener, NULL, NULL)) >= 0);
	EQ(close(listener), 0);
	/* The server's side closes first and waits. */
	EQ(close(e.b), 0);
	EQ(close(e.a), 0);
	int again = a_socket(kind);
	set_int(again, SOL_SOCKET, SO_REUSEADDR, 1);
	EQ(bind(again, &name.any, name.length), 0);
	EQ(listen(again, 1), 0);
	EQ(close(again), 0);
}

TCPS("reuseport.listeners-share")
{
	int one = a_socket(kind), two = a_socket(kind);
	struct name name = loopback(kind);

	set_int(one, SOL_SOCKET, SO_REUSEPORT, 1);
	set_int(two, SOL_SOCKET, SO_REUSEPORT, 1);
	NEED(bind(one, &name.any, name.length) == 0);
	name = name_of(one);
	EQ(bind(two, &name.any, name.length), 0);
	EQ(listen(one, 64), 0);
	EQ(listen(two, 64), 0);
	int fds[20], taken = 0;
	for (int i = 0; i < 20; i++) {
		fds[i] = a_socket(kind);
		NEED(connect(fds[i], &name.any, name.length) == 0);
	}
	set_nonblocking(one, true);
	set_nonblocking(two, true);
	double end = now() + 5;
	while (taken < 20 && now() < end) {
		int got = accept(one, NULL, NULL);
		if (got < 0)
			got = accept(two, NULL, NULL);
		if (got >= 0) {
			taken++;
			close(got);
		}
	}
	EQ(taken, 20);
	for (int i = 0; i < 20; i++)
		EQ(close(fds[i]), 0);
	EQ(close(one), 0);
	EQ(close(two), 0);
}

TCPS("backlog-full-makes-the-next-wait")
{
	int listener = a_listener(kind, 0), one = a_socket(kind);
	struct name name = name_of(listener);

	NEED(connect(one, &name.any, name.length) == 0);
	int two = connecting(kind, &name);
	/* The queue holds one more than asked for; this one waits. */
	CHECK(!(wait_for(two, POLLOUT, QUIET) & POLLERR));
	int got = accept(listener, NULL, NULL);
	NEED(got >= 0);
	CHECK(wait_for(two, POLLOUT, SOON) & POLLOUT);
	EQ(get_int(two, SOL_SOCKET, SO_ERROR), 0);
	EQ(close(got), 0);
	EQ(close(one), 0);
	EQ(close(two), 0);
	EQ(close(listener), 0);
}

TCPS("zero-copy-send-or-refused")
{
	struct ends e = ends_of(kind);
	static char octets[20000];
	char got[20000];
	int on = 1;

	if (setsockopt(e.a, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0)
		SKIP("this kernel has no SO_ZEROCOPY");
	fill(octets, sizeof(octets), 4);
	EQ(send(e.a, octets, sizeof(octets), MSG_ZEROCOPY), (long)sizeof(octets));
	NEED(recv_all(e.b, got, sizeof(got)));
	CHECK(holds(got, sizeof(got), 4));
	/* Its completion is on the error queue. */
	CHECK(wait_for(e.a, 0, SOON) & POLLERR);
	char space[128];
	struct msghdr msg = {.msg_control = space, .msg_controllen = sizeof(space)};
	EQ(recvmsg(e.a, &msg, MSG_ERRQUEUE), 0);
	CHECK(msg.msg_flags & MSG_ERRQUEUE);
	CHECK(CMSG_FIRSTHDR(&msg) != NULL);
	ends_close(e);
}
