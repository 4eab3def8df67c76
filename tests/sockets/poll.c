/* Readiness by poll and select. */
#include "ready.h"

/* --- poll */

SOCKETS("poll.in-and-out")
{
	struct ends e = ends_of(kind);

	EQ(wait_for(e.b, POLLIN | POLLOUT, patience), POLLOUT);
	make_ready(e);
	EQ(wait_for(e.b, POLLIN | POLLOUT, patience), POLLIN | POLLOUT);
	EQ(wait_for(e.b, POLLIN | POLLRDNORM, patience), POLLIN | POLLRDNORM);
	take_some(e.b);
	EQ(wait_for(e.b, POLLIN, 0), 0);
	ends_close(e);
}

SOCKETS("poll.of-nothing-asked-tells-of-errors-only")
{
	struct ends e = ends_of(kind);

	make_ready(e);
	EQ(wait_for(e.b, 0, 0), 0);
	ends_close(e);
}

SOCKETS("poll.a-closed-descriptor-is-invalid")
{
	struct ends e = ends_of(kind);

	ends_close(e);
	EQ(wait_for(e.b, POLLIN, 0), POLLNVAL);
}

SOCKETS("poll.passes-over-negative-descriptors")
{
	struct ends e = ends_of(kind);
	struct pollfd p[3] = {{-1, POLLIN, 77}, {e.b, POLLIN, 0}, {-5, POLLIN, 77}};

	make_ready(e);
	EQ(TEMP_FAILURE_RETRY(poll(p, 3, patience)), 1);
	EQ(p[0].revents, 0);
	EQ(p[1].revents, POLLIN);
	EQ(p[2].revents, 0);
	ends_close(e);
}

SOCKETS("poll.of-many")
{
	struct ends e[8];
	struct pollfd p[8];

	for (int i = 0; i < 8; i++) {
		e[i] = ends_of(kind);
		p[i] = (struct pollfd){e[i].b, POLLIN, 0};
	}
	make_ready(e[3]);
	make_ready(e[6]);
	EQ(TEMP_FAILURE_RETRY(poll(p, 8, patience)), 2);
	for (int i = 0; i < 8; i++) {
		EQ(p[i].revents, i == 3 || i == 6 ? POLLIN : 0);
		ends_close(e[i]);
	}
}

SOCKETS("poll.times-out")
{
	calm();
	struct ends e = ends_of(kind);
	struct pollfd p = {e.b, POLLIN, 0};
	double start = now();

	EQ(poll(&p, 1, 40), 0);
	CHECK(now() - start >= 0.039);
	EQ(p.revents, 0);
	EQ(poll(NULL, 0, 5), 0);
	ends_close(e);
}

SOCKETS("ppoll.times-out-and-leaves-the-time")
{
	calm();
	struct ends e = ends_of(kind);
	struct pollfd p = {e.b, POLLIN, 0};
	struct timespec limit = {0, 30000000};
	double start = now();

	EQ(ppoll(&p, 1, &limit, NULL), 0);
	CHECK(now() - start >= 0.029);
	EQ(limit.tv_nsec, 30000000);
	limit.tv_nsec = 1000000000;
	FAILS(ppoll(&p, 1, &limit, NULL), EINVAL);
	ends_close(e);
}

STREAMS("poll.of-an-ended-stream")
{
	struct ends e = ends_of(kind);

	EQ(shutdown(e.a, SHUT_WR), 0);
	NEED(is_readable(e.b));
	EQ(wait_for(e.b, POLLIN | POLLRDHUP, patience), POLLIN | POLLRDHUP);
	EQ(wait_for(e.b, POLLIN, patience), POLLIN);
	EQ(shutdown(e.b, SHUT_WR), 0);
	/* Both ways down: hung up, whether asked or not. */
	double end = deadline();
	while (!(wait_for(e.b, 0, 10) & POLLHUP) && now() < end)
		;
	EQ(wait_for(e.b, 0, 0), POLLHUP);
	ends_close(e);
}

STREAMS("poll.of-an-unconnected-stream")
{
	int fd = a_socket(kind);

	EQ(wait_for(fd, POLLIN | POLLOUT, 0) & POLLHUP, POLLHUP);
	EQ(close(fd), 0);
}

STREAMS("poll.of-a-listener")
{
	int listener = a_listener(kind, 4), fd = a_socket(kind);
	struct name name = name_of(listener);

	EQ(wait_for(listener, POLLIN | POLLOUT, 0), 0);
	NEED(connect(fd, &name.any, name.length) == 0);
	EQ(wait_for(listener, POLLIN, patience), POLLIN);
	int got = accept(listener, NULL, NULL);
	NEED(got >= 0);
	EQ(wait_for(listener, POLLIN, 0), 0);
	EQ(close(got), 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

/* --- select */

SOCKETS("select.in-and-out")
{
	struct ends e = ends_of(kind);

	EQ(select_one(e.b, false, 0), 0);
	EQ(select_one(e.b, true, patience), 1);
	make_ready(e);
	EQ(select_one(e.b, false, patience), 1);
	ends_close(e);
}

SOCKETS("select.writes-the-sets")
{
	struct ends e = ends_of(kind), other = ends_of(kind);
	fd_set in, out;
	struct timeval zero = {0, 0};
	int top = e.b > other.b ? e.b : other.b;

	make_ready(e);
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(e.b, &in);
	FD_SET(other.b, &in);
	FD_SET(other.b, &out);
	EQ(TEMP_FAILURE_RETRY(select(top + 1, &in, &out, NULL, &zero)), 2);
	CHECK(FD_ISSET(e.b, &in) && !FD_ISSET(other.b, &in) && FD_ISSET(other.b, &out));
	ends_close(e);
	ends_close(other);
}

SOCKETS("select.a-closed-descriptor-is-an-error")
{
	struct ends e = ends_of(kind);
	fd_set in;
	struct timeval zero = {0, 0};

	ends_close(e);
	FD_ZERO(&in);
	FD_SET(e.b, &in);
	FAILS(select(e.b + 1, &in, NULL, NULL, &zero), EBADF);
}

SOCKETS("select.leaves-what-is-left-of-the-time")
{
	calm();
	struct ends e = ends_of(kind);
	fd_set in;
	struct timeval limit = {1000, 0};

	make_ready(e);
	FD_ZERO(&in);
	FD_SET(e.b, &in);
	EQ(select(e.b + 1, &in, NULL, NULL, &limit), 1);
	CHECK(limit.tv_sec < 1000 && limit.tv_sec >= 900);
	FD_ZERO(&in);
	limit = (struct timeval){0, 20000};
	EQ(select(0, &in, NULL, NULL, &limit), 0);
	EQ(limit.tv_usec, 0);
	ends_close(e);
}

SOCKETS("pselect.leaves-its-time-alone")
{
	calm();
	struct ends e = ends_of(kind);
	fd_set in;
	struct timespec limit = {0, 20000000};

	FD_ZERO(&in);
	FD_SET(e.b, &in);
	EQ(pselect(e.b + 1, &in, NULL, NULL, &limit, NULL), 0);
	EQ(limit.tv_nsec, 20000000);
	ends_close(e);
}

CASE("select.negative-count-is-invalid")
{
	FAILS(select(-1, NULL, NULL, NULL, NULL), EINVAL);
}
