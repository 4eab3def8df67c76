/* When a stream is ready, told by poll, select and epoll in every mode: after a part was read, after all was, when it
   is full, and never for nothing. */
#include "flow.h"
#include "ready.h"
#include "waiter.h"

/* Longer than anything spurious may last, in milliseconds. */
enum { SPURIOUS = 100 };

/* --- never for nothing */

/* Nothing may be read, now or soon, and nothing becomes so by itself. */
static void settles(int fd)
{
	double end = now() + SPURIOUS / 1e3;

	while (wait_for(fd, POLLIN, 0) && now() < end)
		sleep_ms(1);
	EQ(wait_for(fd, POLLIN, 0), 0);
}

TCPS("edges.new-connections-are-quiet")
{
	struct ends e = ends_of(kind);
	int sets[2] = {a_poll(), a_poll()};

	watch(sets[0], e.a, EPOLLIN | EPOLLRDHUP | EPOLLPRI);
	watch(sets[1], e.b, EPOLLIN | EPOLLRDHUP | EPOLLPRI | EPOLLET);
	EQ(events_of(sets[0], NULL, SPURIOUS), 0);
	EQ(events_of(sets[1], NULL, SPURIOUS), 0);
	EQ(wait_for(e.a, POLLIN, SPURIOUS), 0);
	EQ(wait_for(e.b, POLLIN, SPURIOUS), 0);
	FAILS(recv(e.a, sets, 1, MSG_DONTWAIT), EAGAIN);
	FAILS(recv(e.b, sets, 1, MSG_DONTWAIT), EAGAIN);
	EQ(close(sets[0]), 0);
	EQ(close(sets[1]), 0);
	ends_close(e);
}

TCPS("edges.quiet-after-small-writes-and-full-reads")
{
	struct ends e = ends_of(kind);
	struct flow out[2] = {{1, 0}, {2, 0}}, in[2] = {{1, 0}, {2, 0}};
	unsigned seed = 1;

	/* Both ways, so that each side's answers to the other's octets are in it; one way with Nagle's delay. */
	set_int(e.a, IPPROTO_TCP, TCP_NODELAY, 1);
	for (int i = 0; i < 40; i++) {
		int way = (int)any_below(&seed, 2), from = way ? e.b : e.a, to = way ? e.a : e.b;
		for (size_t j = any_below(&seed, 6); j < 6; j++)
			NEED(flow_send(&out[way], from, 1 + any_below(&seed, 40)));
		NEED(flow_recv(&in[way], to, out[way].at - in[way].at));
		settles(e.a);
		settles(e.b);
	}
	EQ(wait_for(e.a, POLLIN, SPURIOUS), 0);
	EQ(wait_for(e.b, POLLIN, SPURIOUS), 0);
	ends_close(e);
}

TCPS("edges.quiet-after-large-writes-and-full-reads")
{
	struct ends e = tight_ends(kind);
	struct flow out = {3, 0}, in = out;

	for (int i = 0; i < 3; i++) {
		flow_fill(&out, e.a);
		NEED(flow_recv(&in, e.b, out.at - in.at));
		settles(e.b);
		settles(e.a);
	}
	EQ(wait_for(e.b, POLLIN, SPURIOUS), 0);
	EQ(wait_for(e.a, POLLIN, 0), 0);
	ends_close(e);
}

struct writing {
	int fd;
	struct flow flow;
	size_t length;
};

static void *write_all(void *of)
{
	struct writing *w = of;
	unsigned seed = 4;

	for (size_t done = 0; done < w->length;) {
		size_t some = 1 + any_below(&seed, w->length - done);
		NEED(flow_send(&w->flow, w->fd, some));
		done += some;
	}
	NEED(shutdown(w->fd, SHUT_WR) == 0);
	return NULL;
}

/* A program that trusts its poll: what is readable gives octets at once, however they came. */
static void readable_means_octets(struct ends e, unsigned seed)
{
	struct writing w = {e.a, {4, 0}, 1 << 20};
	struct flow in = w.flow;
	static char octets[60000];
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, write_all, &w) == 0);
	for (;;) {
		NEED(is_readable(e.b));
		ssize_t got = recv(e.b, octets, 1 + any_below(&seed, sizeof(octets) - 1), MSG_DONTWAIT);
		if (got == 0)
			break;
		if (got < 0)
			CHECKF(false, "after %llu octets: %s", (unsigned long long)in.at, strerror(errno));
		NEED(got > 0 && flow_is(&in, octets, (size_t)got));
	}
	NEED(join_soon(thread, NULL));
	EQ(in.at, w.flow.at);
	ends_close(e);
}

TCPS("edges.readable-means-octets")
{
	readable_means_octets(ends_of(kind), 5);
}

TCPS("edges.readable-means-octets-with-small-buffers")
{
	readable_means_octets(tight_ends(kind), 6);
}

/* --- after a part was read */

TCPS("edges.level-again-until-the-last-octet")
{
	struct ends e = ends_of(kind);
	struct flow out = {5, 0}, in = out;
	struct epoll_event got;
	int set = a_poll(), outer = a_poll();

	watch(set, e.b, EPOLLIN);
	watch(outer, set, EPOLLIN);
	NEED(flow_send(&out, e.a, 30) && flow_send(&out, e.a, 20));
	NEED(octets_come(e.b, 50));
	for (int left = 50; left > 0; left -= 5) {
		EQ(events_of(set, &got, 0), 1);
		EQ(got.events, EPOLLIN);
		EQ(events_of(outer, NULL, 0), 1);
		EQ(wait_for(e.b, POLLIN | POLLRDNORM, 0), POLLIN | POLLRDNORM);
		EQ(select_one(e.b, false, 0), 1);
		EQ(wait_for(outer, POLLIN, 0), POLLIN);
		NEED(flow_recv(&in, e.b, 5));
	}
	EQ(events_of(set, NULL, 0), 0);
	EQ(events_of(outer, NULL, 0), 0);
	EQ(wait_for(e.b, POLLIN, 0), 0);
	EQ(select_one(e.b, false, 0), 0);
	EQ(close(set), 0);
	EQ(close(outer), 0);
	ends_close(e);
}

TCPS("edges.a-set-made-after-a-part-was-read-tells-of-the-rest")
{
	struct ends e = ends_of(kind);
	struct flow out = {6, 0}, in = out;

	NEED(flow_send(&out, e.a, 500) && octets_come(e.b, 500) && flow_recv(&in, e.b, 123));
	uint32_t modes[] = {EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLEXCLUSIVE};
	for (int i = 0; i < 4; i++) {
		int set = a_poll();
		watch(set, e.b, modes[i]);
		EQ(events_of(set, NULL, 0), 1);
		EQ(close(set), 0);
	}
	NEED(flow_recv(&in, e.b, 377));
	ends_close(e);
}

TCPS("edges.an-edge-is-of-new-octets-only")
{
	struct ends e = ends_of(kind);
	struct flow out = {7, 0}, in = out;
	int set = a_poll();

	watch(set, e.b, EPOLLIN | EPOLLET);
	for (int i = 0; i < 5; i++) {
		NEED(flow_send(&out, e.a, 100));
		NEED(octets_come(e.b, (int)(out.at - in.at)));
		EQ(events_of(set, NULL, patience), 1);
		EQ(events_of(set, NULL, 0), 0);
		/* A part read is none, all read is none, a look is none. */
		NEED(flow_recv(&in, e.b, 10));
		EQ(recv(e.b, (char[8]){0}, 8, MSG_PEEK), 8);
		EQ(events_of(set, NULL, QUIET), 0);
		if (i % 2) {
			NEED(flow_recv(&in, e.b, out.at - in.at));
			EQ(events_of(set, NULL, 0), 0);
		}
	}
	EQ(close(set), 0);
	ends_close(e);
}

TCPS("edges.one-shot-again-for-the-rest")
{
	struct ends e = ends_of(kind);
	struct flow out = {8, 0}, in = out;
	struct epoll_event again = {.events = EPOLLIN | EPOLLONESHOT};
	int set = a_poll();

	watch(set, e.b, EPOLLIN | EPOLLONESHOT);
	NEED(flow_send(&out, e.a, 40) && octets_come(e.b, 40));
	for (int i = 0; i < 4; i++) {
		EQ(events_of(set, NULL, patience), 1);
		NEED(flow_recv(&in, e.b, 10));
		EQ(events_of(set, NULL, 0), 0);
		EQ(epoll_ctl(set, EPOLL_CTL_MOD, e.b, &again), 0);
	}
	EQ(events_of(set, NULL, QUIET), 0);
	EQ(close(set), 0);
	ends_close(e);
}

/* An edge-triggered server: it reads to the last octet on each edge, and misses none. */
TCPS("edges.reading-all-on-each-edge-misses-nothing")
{
	struct ends e = ends_of(kind);
	struct writing w = {e.a, {9, 0}, 1 << 20};
	struct flow in = w.flow;
	static char octets[30000];
	pthread_t thread;
	int set = a_poll();
	ssize_t got = -1;

	watch(set, e.b, EPOLLIN | EPOLLRDHUP | EPOLLET);
	NEED(pthread_create(&thread, NULL, write_all, &w) == 0);
	while (got != 0) {
		NEED(events_of(set, NULL, patience) == 1);
		while ((got = recv(e.b, octets, sizeof(octets), MSG_DONTWAIT)) > 0)
			NEED(flow_is(&in, octets, (size_t)got));
		NEED(got == 0 || errno == EAGAIN);
	}
	NEED(join_soon(thread, NULL));
	EQ(in.at, w.flow.at);
	EQ(close(set), 0);
	ends_close(e);
}

/* --- when it is full */

/* Full, as poll has it. */
static void fill_for_good(struct flow *out, int fd)
{
	double end = deadline();

	do
		flow_fill(out, fd);
	while (wait_for(fd, POLLOUT, 60) && now() < end);
}

/* What poll does not tell, epoll and select do not tell. False where a late acknowledgement made room meanwhile. */
static bool is_told_full(int set, int edge, int fd)
{
	/* Edges of what opened while it was filled. */
	events_of(edge, NULL, 0);
	bool told = events_of(set, NULL, 0) || select_one(fd, true, 0) || events_of(edge, NULL, QUIET);
	if (wait_for(fd, POLLOUT, 0))
		return false;
	CHECK(!told);
	return true;
}

TCPS("edges.writable-goes-when-full-and-comes-back")
{
	struct ends e = tight_ends(kind);
	struct flow out = {10, 0}, in = out;
	struct epoll_event got;
	int set = a_poll(), edge = a_poll();
	double end = deadline();

	watch(set, e.a, EPOLLOUT);
	watch(edge, e.a, EPOLLOUT | EPOLLET);
	EQ(events_of(set, &got, 0), 1);
	EQ(got.events, EPOLLOUT);
	EQ(events_of(edge, NULL, 0), 1);
	for (int i = 0; i < 2; i++) {
		do
			fill_for_good(&out, e.a);
		while (!is_told_full(set, edge, e.a) && now() < end);
		NEED(flow_recv(&in, e.b, out.at - in.at));
		EQ(wait_for(e.a, POLLOUT, patience), POLLOUT);
		EQ(events_of(set, NULL, patience), 1);
		EQ(events_of(edge, NULL, patience), 1);
		EQ(select_one(e.a, true, patience), 1);
	}
	CHECK(now() < end);
	EQ(close(set), 0);
	EQ(close(edge), 0);
	ends_close(e);
}

TCPS("edges.writable-means-room")
{
	struct ends e = tight_ends(kind);
	struct flow out = {11, 0}, in = out;
	static char octets[50000];
	unsigned seed = 11;

	for (int i = 0; i < 300; i++) {
		while (wait_for(e.a, POLLOUT, 0)) {
			size_t some = 1 + any_below(&seed, sizeof(octets) - 1);
			struct flow next = out;
			flow_next(&next, octets, some);
			ssize_t sent = send(e.a, octets, some, MSG_DONTWAIT);
			NEED(sent > 0);
			out.at += (uint64_t)sent;
		}
		size_t there = out.at - in.at;
		NEED(flow_recv(&in, e.b, 1 + any_below(&seed, there)));
		if (any_below(&seed, 8) == 0)
			NEED(flow_recv(&in, e.b, out.at - in.at));
	}
	NEED(flow_recv(&in, e.b, out.at - in.at));
	ends_close(e);
}

TCPS("edges.a-full-one-is-readable-all-the-same")
{
	struct ends e = tight_ends(kind);
	struct flow out = {12, 0}, back = {13, 0}, back_in = back, in = out;

	/* The octets there bring a late acknowledgement with them, which may make room. */
	for (int i = 0; i < 3; i++) {
		fill_for_good(&out, e.a);
		NEED(flow_send(&back, e.b, 700));
		EQ(wait_for(e.a, POLLIN, patience), POLLIN);
		NEED(flow_recv(&back_in, e.a, 700));
		EQ(wait_for(e.a, POLLIN, 0), 0);
	}
	NEED(flow_recv(&in, e.b, out.at));
	ends_close(e);
}

/* --- never of a number that is closed, though what it was goes on */

static void enters_twice(int sets[2], int fd)
{
	for (int i = 0; i < 2; i++)
		watch(sets[i] = a_poll(), fd, EPOLLIN);
}

static void is_told_of_by_none(const int sets[2])
{
	EQ(events_of(sets[0], NULL, SPURIOUS), 0);
	EQ(events_of(sets[1], NULL, 0), 0);
	EQ(close(sets[0]), 0);
	EQ(close(sets[1]), 0);
}

TCPS("edges.a-closed-number-is-told-of-by-no-set")
{
	struct ends e = ends_of(kind);
	int sets[2];

	talks(e.a, e.b);
	NEED(fill_up(e.b) > 0);
	enters_twice(sets, e.b);
	EQ(close(e.b), 0);
	EQ(send(e.a, "later", 5, MSG_NOSIGNAL), 5);
	is_told_of_by_none(sets);
	EQ(close(e.a), 0);
}

TCPS("edges.a-closed-number-that-a-call-waited-on-is-told-of-by-no-set")
{
	calm();
	struct ends e = ends_of(kind);
	int sets[2];

	talks(e.a, e.b);
	NEED(fill_up(e.b) > 0);
	enters_twice(sets, e.b);
	struct waiter w = {.fd = e.b};
	pthread_t thread = waiting(&w, wait_recv);
	EQ(close(e.b), 0);
	EQ(send(e.a, "late", 4, MSG_NOSIGNAL), 4);
	NEED(join_soon(thread, NULL));
	EQ(w.result, 4);
	send(e.a, "later", 5, MSG_NOSIGNAL);
	is_told_of_by_none(sets);
	EQ(close(e.a), 0);
}
