/* TCP only: resets, lingering, options, corking, zero copy. */
#include "env.h"

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
	NEED(wait_for(e.b, POLLIN, patience));
	FAILS(send(e.b, "x", 1, MSG_NOSIGNAL), ECONNRESET);
	FAILS(send(e.b, "x", 1, MSG_NOSIGNAL), EPIPE);
	EQ(close(e.b), 0);
}

TCPS("reset.in-poll-and-so_error")
{
	struct ends e = ends_of(kind);

	reset(e.a);
	EQ(wait_for(e.b, POLLIN | POLLOUT | POLLRDHUP, patience),
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
	double end = deadline();
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
	struct linger some = {1, 40};
	char got[8];

	EQ(setsockopt(e.a, SOL_SOCKET, SO_LINGER, &some, sizeof(some)), 0);
	EQ(send(e.a, "last", 4, 0), 4);
	double start = now();
	EQ(close(e.a), 0);
	/* The other side's kernel acknowledges at once. */
	CHECK(now() - start < 20);
	EQ(recv(e.b, got, 8, 0), 4);
	EQ(recv(e.b, got, 8, 0), 0);
	EQ(close(e.b), 0);
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

/* Octets that are held back arrive with the next, as one. They leave by themselves after a fifth of a second (tcp(7)):
   where the machine stood still for so long, nothing is said, and this is false. */
static bool held_back(struct ends e, bool corked)
{
	char got[8];
	double start = now();

	if (corked)
		set_int(e.a, IPPROTO_TCP, TCP_CORK, 1);
	EQ(send(e.a, "ab", 2, corked ? 0 : MSG_MORE), 2);
	bool quiet = stays_quiet(e.b);
	EQ(send(e.a, "cd", 2, 0), 2);
	if (corked)
		set_int(e.a, IPPROTO_TCP, TCP_CORK, 0);
	NEED(is_readable(e.b));
	ssize_t first = recv(e.b, got, 8, 0);
	if (now() - start > 0.15)
		return false;
	CHECK(quiet);
	EQ(first, 4);
	return true;
}

static void holds_back(long kind, bool corked)
{
	for (int tries = 0; tries < 100; tries++) {
		struct ends e = ends_of(kind);
		bool said = held_back(e, corked);
		ends_close(e);
		if (said)
			return;
	}
	CHECKF(false, "the machine stood still in each of 100 tries");
}

TCPS("cork.holds-until-it-is-pulled")
{
	holds_back(kind, true);
}

TCPS("msg_more-holds-until-the-next")
{
	holds_back(kind, false);
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

static void zero_copy_completes(struct ends e)
{
	static char octets[20000];
	char got[20000];

	fill(octets, sizeof(octets), 4);
	EQ(send(e.a, octets, sizeof(octets), MSG_ZEROCOPY), (long)sizeof(octets));
	NEED(recv_all(e.b, got, sizeof(got)));
	CHECK(holds(got, sizeof(got), 4));
	/* Its completion is on the error queue. */
	CHECK(wait_for(e.a, 0, patience) & POLLERR);
	char space[128];
	struct msghdr msg = {.msg_control = space, .msg_controllen = sizeof(space)};
	EQ(recvmsg(e.a, &msg, MSG_ERRQUEUE), 0);
	CHECK(msg.msg_flags & MSG_ERRQUEUE);
	CHECK(CMSG_FIRSTHDR(&msg) != NULL);
	ends_close(e);
}

TCPS("zero-copy-send-or-refused")
{
	struct ends e = ends_of(kind);
	int on = 1;

	if (setsockopt(e.a, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0)
		SKIP("this kernel has no SO_ZEROCOPY");
	zero_copy_completes(e);
}

/* Who may ask for it is told when it is done; who is not told may not. */
TCPS("zero-copy-asked-for-before-connect-or-refused")
{
	int listener = a_socket(kind), on = 1;
	struct name at = loopback(kind);
	struct ends e = {.a = a_socket(kind)};

	NEED(bind(listener, &at.any, at.length) == 0 && listen(listener, 1) == 0);
	at = name_of(listener);
	if (setsockopt(e.a, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0)
		SKIP("this kernel has no SO_ZEROCOPY");
	if (connect(e.a, &at.any, at.length) != 0) {
		EQ(errno, EOPNOTSUPP);
		EQ(close(e.a), 0);
	} else {
		e.b = accept(listener, NULL, NULL);
		NEED(e.b >= 0);
		zero_copy_completes(e);
	}
	EQ(close(listener), 0);
}

TCPS("zero-copy-asked-for-of-a-listener-or-refused")
{
	int listener = a_socket(kind), on = 1;
	struct name at = loopback(kind);
	struct ends e = {.b = a_socket(kind)};

	NEED(bind(listener, &at.any, at.length) == 0);
	if (setsockopt(listener, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0)
		SKIP("this kernel has no SO_ZEROCOPY");
	if (listen(listener, 1) != 0) {
		EQ(errno, EOPNOTSUPP);
		EQ(close(e.b), 0);
	} else {
		at = name_of(listener);
		NEED(connect(e.b, &at.any, at.length) == 0);
		e.a = accept(listener, NULL, NULL);
		NEED(e.a >= 0);
		zero_copy_completes(e);
	}
	EQ(close(listener), 0);
}
