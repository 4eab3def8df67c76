/* Octets out and in, by every function there is. */
#include "env.h"

enum { SOME = 300000 };

enum way_out { BY_RSEND, BY_RSENDTO, BY_RSENDMSG, BY_RWRITE, BY_RWRITEV, WAYS_OUT };
enum way_in { BY_RRECV, BY_RRECVFROM, BY_RRECVMSG, BY_RREAD, BY_RREADV, WAYS_IN };

static const char *const out_names[] = {"rsend", "rsendto", "rsendmsg", "rwrite", "rwritev"};
static const char *const in_names[] = {"rrecv", "rrecvfrom", "rrecvmsg", "rread", "rreadv"};

/* A buffer in two parts. */
static struct msghdr parts(struct iovec *list, void *at, size_t length)
{
	list[0] = (struct iovec){at, length / 3};
	list[1] = (struct iovec){(char *)at + length / 3, length - length / 3};
	return (struct msghdr){.msg_iov = list, .msg_iovlen = 2};
}

static ssize_t put(enum way_out how, int fd, const void *octets, size_t length)
{
	struct iovec list[2];
	struct msghdr message = parts(list, (void *)octets, length);

	switch (how) {
	case BY_RSEND: return rsend(fd, octets, length, 0);
	case BY_RSENDTO: return rsendto(fd, octets, length, 0, NULL, 0);
	case BY_RSENDMSG: return rsendmsg(fd, &message, 0);
	case BY_RWRITE: return rwrite(fd, octets, length);
	case BY_RWRITEV: return rwritev(fd, list, 2);
	default: abort();
	}
}

static ssize_t get(enum way_in how, int fd, void *octets, size_t room)
{
	struct iovec list[2];
	struct msghdr message = parts(list, octets, room);

	switch (how) {
	case BY_RRECV: return rrecv(fd, octets, room, 0);
	case BY_RRECVFROM: return rrecvfrom(fd, octets, room, 0, NULL, NULL);
	case BY_RRECVMSG: return rrecvmsg(fd, &message, 0);
	case BY_RREAD: return rread(fd, octets, room);
	case BY_RREADV: return rreadv(fd, list, 2);
	default: abort();
	}
}

struct sending {
	enum way_out how;
	int fd;
	unsigned seed;
	pthread_t thread;
};

static void *send_some(void *of)
{
	struct sending *s = of;
	unsigned char *octets = malloc(SOME);

	NEED(octets);
	fill(octets, SOME, s->seed);
	for (size_t done = 0; done < SOME;) {
		ssize_t sent = put(s->how, s->fd, octets + done, SOME - done);
		if (!CHECK(sent > 0))
			break;
		done += (size_t)sent;
	}
	free(octets);
	return NULL;
}

static void recv_some(enum way_in how, int fd, unsigned seed)
{
	unsigned char octets[SOME];

	for (size_t done = 0; done < SOME;) {
		ssize_t got = get(how, fd, octets + done, SOME - done);
		if (!CHECK(got > 0))
			return;
		done += (size_t)got;
	}
	holds(octets, SOME, seed);
}

static void from_to(long ways)
{
	struct ends e = ends_of(AF_INET);
	struct sending s = {.how = (enum way_out)(ways / WAYS_IN), .fd = e.a, .seed = (unsigned)ways};

	NEED(pthread_create(&s.thread, NULL, send_some, &s) == 0);
	recv_some((enum way_in)(ways % WAYS_IN), e.b, s.seed);
	EQ(pthread_join(s.thread, NULL), 0);
	ends_close(e);
}

CASES
{
	for (long out = 0; out < WAYS_OUT; out++)
		for (long in = 0; in < WAYS_IN; in++)
			ADD(from_to, out * WAYS_IN + in, "data.%s-to-%s", out_names[out], in_names[in]);
}

CASE("data.both-ends-send-at-once")
{
	struct ends e = ends_of(AF_INET);
	struct sending a = {.fd = e.a, .seed = 1}, b = {.fd = e.b, .seed = 2};

	for (int round = 0; round < 10; round++) {
		NEED(pthread_create(&a.thread, NULL, send_some, &a) == 0);
		NEED(pthread_create(&b.thread, NULL, send_some, &b) == 0);
		recv_some(BY_RRECV, e.b, a.seed);
		recv_some(BY_RRECV, e.a, b.seed);
		pthread_join(a.thread, NULL);
		pthread_join(b.thread, NULL);
	}
	ends_close(e);
}

CASE("data.a-look-takes-nothing")
{
	struct ends e = ends_of(AF_INET);
	char octets[4] = "";

	EQ(rsend(e.a, "look", 4, 0), 4);
	EQ(rrecv(e.b, octets, 4, MSG_PEEK | MSG_WAITALL), 4);
	SAME(octets, "look", 4);
	memset(octets, 0, 4);
	EQ(rrecv(e.b, octets, 4, 0), 4);
	SAME(octets, "look", 4);
	stays_quiet(e.b);
	ends_close(e);
}

CASE("data.a-receive-need-not-wait")
{
	struct ends e = ends_of(AF_INET);
	char octet;

	FAILS(rrecv(e.b, &octet, 1, MSG_DONTWAIT), EAGAIN);
	set_nonblocking(e.b, true);
	FAILS(rrecv(e.b, &octet, 1, 0), EAGAIN);
	FAILS(rread(e.b, &octet, 1), EAGAIN);
	set_nonblocking(e.b, false);
	talks(e.a, e.b);
	ends_close(e);
}

CASE("data.a-full-socket-takes-no-more-and-then-more")
{
	struct ends e = ends_of(AF_INET);
	static char octets[65536];
	size_t sent = fill_up(e.a);

	CHECKF(sent > 65536 && sent < 64u << 20, "it took %zu octets", sent);
	CHECK(!(wait_for(e.a, POLLOUT, QUIET) & POLLOUT));
	while (sent > 0) {
		ssize_t got = rrecv(e.b, octets, sizeof(octets), 0);
		NEED(got > 0);
		sent -= (size_t)got;
	}
	CHECK(wait_for(e.a, POLLOUT, patience) & POLLOUT);
	set_nonblocking(e.a, false);
	talks(e.a, e.b);
	ends_close(e);
}

CASE("data.nothing-is-nothing")
{
	struct ends e = ends_of(AF_INET);

	EQ(rsend(e.a, "", 0, 0), 0);
	EQ(rwrite(e.a, "", 0), 0);
	stays_quiet(e.b);
	talks(e.a, e.b);
	ends_close(e);
}

CASE("data.a-list-that-is-none-is-refused")
{
	struct ends e = ends_of(AF_INET);
	struct iovec v = {"x", 1};

	FAILS(rwritev(e.a, &v, -1), EINVAL);
	FAILS(rwritev(e.a, &v, 1025), EINVAL);
	FAILS(rreadv(e.a, &v, -1), EINVAL);
	stays_quiet(e.b);
	ends_close(e);
}

static void *receive_for_ever(void *of)
{
	char octet;

	rrecv(*(int *)of, &octet, 1, 0);
	return NULL;
}

CASE("data.a-thread-that-waits-can-be-cancelled")
{
	struct ends e = ends_of(AF_INET);
	pthread_t thread;
	void *result = NULL;

	NEED(pthread_create(&thread, NULL, receive_for_ever, &e.b) == 0);
	sleep_ms(QUIET);
	EQ(pthread_cancel(thread), 0);
	EQ(pthread_join(thread, &result), 0);
	CHECK(result == PTHREAD_CANCELED);
	talks(e.a, e.b);
	ends_close(e);
}
