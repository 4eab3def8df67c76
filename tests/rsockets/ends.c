/* The end of a connection, from either side. */
#include "env.h"

CASE("ends.a-close-is-the-end-of-the-stream")
{
	struct ends e = ends_of(AF_INET);
	char octet;

	talks(e.a, e.b);
	EQ(rclose(e.a), 0);
	EQ(rrecv(e.b, &octet, 1, 0), 0);
	EQ(rrecv(e.b, &octet, 1, 0), 0);
}

CASE("ends.what-was-sent-before-a-close-arrives")
{
	enum { OCTETS = 1 << 20 };
	static unsigned char sent[OCTETS], got[OCTETS];
	struct ends e = ends_of(AF_INET);
	char octet;

	fill(sent, OCTETS, 9);
	size_t took = 0;
	set_nonblocking(e.a, true);
	while (took < OCTETS) {
		ssize_t more = rsend(e.a, sent + took, OCTETS - took, 0);
		if (more < 0)
			break;
		took += (size_t)more;
	}
	EQ(rclose(e.a), 0);
	CHECK(took > 0 && recv_all(e.b, got, took));
	holds(got, took, 9);
	EQ(rrecv(e.b, &octet, 1, 0), 0);
}

CASE("ends.one-half-is-shut-down")
{
	struct ends e = ends_of(AF_INET);
	char octet;

	EQ(rshutdown(e.a, SHUT_WR), 0);
	EQ(rrecv(e.b, &octet, 1, 0), 0);
	FAILS(rsend(e.a, "x", 1, 0), EPIPE);
	/* The other half goes on. */
	talks(e.b, e.a);
	ends_close(e);
}

CASE("ends.both-halves-are-shut-down")
{
	struct ends e = ends_of(AF_INET);
	char octet;

	EQ(rshutdown(e.a, SHUT_RDWR), 0);
	EQ(rrecv(e.a, &octet, 1, 0), 0);
	EQ(rrecv(e.b, &octet, 1, 0), 0);
	FAILS(rsend(e.a, "x", 1, 0), EPIPE);
	ends_close(e);
}

CASE("ends.a-shutdown-is-for-connections")
{
	int fd = an_rsocket(AF_INET);
	struct ends e = ends_of(AF_INET);

	FAILS(rshutdown(fd, SHUT_RDWR), ENOTCONN);
	FAILS(rshutdown(e.a, 7), EINVAL);
	talks(e.a, e.b);
}

/* By every function that sends: none raises SIGPIPE, which would end the case. */
CASE("ends.sends-to-nobody-fail-without-a-signal")
{
	struct ends e = ends_of(AF_INET);
	struct iovec v = {"x", 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	double end = deadline();

	EQ(rclose(e.b), 0);
	/* The first may leave before the news comes. */
	while (rsend(e.a, "x", 1, 0) == 1 && now() < end)
		sleep_ms(1);
	CHECK(errno == EPIPE || errno == ECONNRESET);
	FAILS(rsend(e.a, "x", 1, 0), EPIPE);
	FAILS(rsendto(e.a, "x", 1, 0, NULL, 0), EPIPE);
	FAILS(rsendmsg(e.a, &m, 0), EPIPE);
	FAILS(rwrite(e.a, "x", 1), EPIPE);
	FAILS(rwritev(e.a, &v, 1), EPIPE);
}

/* A peer that reads nothing, and a socket full to the brim: no call that ends it waits. */
CASE("ends.a-shutdown-never-waits-for-the-peer")
{
	struct ends e = ends_of(AF_INET);
	size_t sent = fill_up(e.a);
	double begun = now();

	set_nonblocking(e.a, false);
	EQ(rshutdown(e.a, SHUT_RDWR), 0);
	EQ(rclose(e.a), 0);
	CHECKF(now() - begun < 1, "it took %.1f s", now() - begun);
	/* And nothing of what was sent is lost by that. */
	static char octets[65536];
	for (ssize_t got; (got = rrecv(e.b, octets, sizeof(octets), 0)) > 0;)
		sent -= (size_t)got;
	EQ(sent, 0);
}

CASE("ends.a-waiting-reader-hears-of-the-end")
{
	struct ends e = ends_of(AF_INET);

	EQ(wait_for(e.b, POLLIN, QUIET), 0);
	EQ(rclose(e.a), 0);
	CHECK(wait_for(e.b, POLLIN, patience) & (POLLIN | POLLHUP));
}

CASE("ends.a-reset-is-a-reset")
{
	struct ends e = ends_of(AF_INET);
	struct linger none = {.l_onoff = 1};
	char octet;

	talks(e.a, e.b);
	EQ(rsetsockopt(e.a, SOL_SOCKET, SO_LINGER, &none, sizeof(none)), 0);
	EQ(rclose(e.a), 0);
	FAILS(rrecv(e.b, &octet, 1, 0), ECONNRESET);
}
