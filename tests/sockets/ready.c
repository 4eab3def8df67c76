/* Readiness: select, poll, epoll in every mode, over plain descriptors, copies and closed ones. */
#include "env.h"

static void make_ready(struct ends e)
{
	EQ(send(e.a, "x", 1, 0), 1);
	NEED(is_readable(e.b));
}

static void take(int fd)
{
	char got[64];

	CHECK(recv(fd, got, sizeof(got), MSG_DONTWAIT) > 0);
}

/* --- poll */

SOCKETS("poll.in-and-out")
{
	struct ends e = ends_of(kind);

	EQ(wait_for(e.b, POLLIN | POLLOUT, SOON), POLLOUT);
	make_ready(e);
	EQ(wait_for(e.b, POLLIN | POLLOUT, SOON), POLLIN | POLLOUT);
	EQ(wait_for(e.b, POLLIN | POLLRDNORM, SOON), POLLIN | POLLRDNORM);
	take(e.b);
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
	EQ(TEMP_FAILURE_RETRY(poll(p, 3, SOON)), 1);
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
	EQ(TEMP_FAILURE_RETRY(poll(p, 8, SOON)), 2);
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
	EQ(wait_for(e.b, POLLIN | POLLRDHUP, SOON), POLLIN | POLLRDHUP);
	EQ(wait_for(e.b, POLLIN, SOON), POLLIN);
	EQ(shutdown(e.b, SHUT_WR), 0);
	/* Both ways down: hung up, whether asked or not. */
	double end = now() + 2;
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
	EQ(wait_for(listener, POLLIN, SOON), POLLIN);
	int got = accept(listener, NULL, NULL);
	NEED(got >= 0);
	EQ(wait_for(listener, POLLIN, 0), 0);
	EQ(close(got), 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

/* --- select */

static int select_one(int fd, bool for_writing, int ms)
{
	fd_set set, none;
	struct timeval limit = {ms / 1000, ms % 1000 * 1000};
	int got;

	do {
		FD_ZERO(&set);
		FD_ZERO(&none);
		FD_SET(fd, &set);
		got = select(fd + 1, for_writing ? &none : &set, for_writing ? &set : &none, NULL, &limit);
	} while (got < 0 && errno == EINTR);
	return got == 1 && FD_ISSET(fd, &set);
}

SOCKETS("select.in-and-out")
{
	struct ends e = ends_of(kind);

	EQ(select_one(e.b, false, 0), 0);
	EQ(select_one(e.b, true, SOON), 1);
	make_ready(e);
	EQ(select_one(e.b, false, SOON), 1);
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
	struct timeval limit = {5, 0};

	make_ready(e);
	FD_ZERO(&in);
	FD_SET(e.b, &in);
	EQ(select(e.b + 1, &in, NULL, NULL, &limit), 1);
	CHECK(limit.tv_sec == 5 || limit.tv_sec == 4);
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

/* --- epoll */

static int a_poll(void)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	NEED(fd >= 0);
	return fd;
}

static void watch(int set, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.u64 = (uint64_t)fd | 0x1234500000000};

	NEED(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

/* How many events within the time; the first in `got`. */
static int events_of(int set, struct epoll_event *got, int ms)
{
	struct epoll_event events[16];
	double end = now() + ms / 1e3;
	int count;

	do
		count = epoll_wait(set, events, 16, now() < end ? ms : 0);
	while (count < 0 && errno == EINTR);
	if (count > 0 && got)
		*got = events[0];
	return count;
}

SOCKETS("epoll.level-triggered")
{
	struct ends e = ends_of(kind);
	struct epoll_event got = {};
	int set = a_poll();

	watch(set, e.b, EPOLLIN);
	EQ(events_of(set, NULL, 0), 0);
	make_ready(e);
	EQ(events_of(set, &got, SOON), 1);
	EQ(got.events, EPOLLIN);
	EQ(got.data.u64, (uint64_t)e.b | 0x1234500000000);
	EQ(events_of(set, NULL, SOON), 1);
	take(e.b);
	EQ(events_of(set, NULL, 0), 0);
	EQ(close(set), 0);
	ends_close(e);
}

SOCKETS("epoll.edge-triggered")
{
	struct ends e = ends_of(kind);
	int set = a_poll();

	watch(set, e.b, EPOLLIN | EPOLLET);
	make_ready(e);
	EQ(events_of(set, NULL, SOON), 1);
	EQ(events_of(set, NULL, QUIET), 0);
	/* More comes: another edge, though the first was not taken. */
	EQ(send(e.a, "y", 1, 0), 1);
	EQ(events_of(set, NULL, SOON), 1);
	EQ(events_of(set, NULL, QUIET), 0);
	EQ(close(set), 0);
	ends_close(e);
}

SOCKETS("epoll.edge-of-what-is-there-when-added")
{
	struct ends e = ends_of(kind);
	int set = a_poll();

	make_ready(e);
	watch(set, e.b, EPOLLIN | EPOLLET);
	EQ(events_of(set, NULL, SOON), 1);
	EQ(events_of(set, NULL, 0), 0);
	EQ(close(set), 0);
	ends_close(e);
}

SOCKETS("epoll.edge-again-by-mod")
{
	struct ends e = ends_of(kind);
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	int set = a_poll();

	watch(set, e.b, EPOLLIN | EPOLLET);
	make_ready(e);
	EQ(events_of(set, NULL, SOON), 1);
	EQ(events_of(set, NULL, 0), 0);
	EQ(epoll_ctl(set, EPOLL_CTL_MOD, e.b, &event), 0);
	EQ(events_of(set, NULL, SOON), 1);
	EQ(close(set), 0);
	ends_close(e);
}

SOCKETS("epoll.one-shot")
{
	struct ends e = ends_of(kind);
	struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
	int set = a_poll();

	watch(set, e.b, EPOLLIN | EPOLLONESHOT);
	make_ready(e);
	EQ(events_of(set, NULL, SOON), 1);
	EQ(events_of(set, NULL, QUIET), 0);
	EQ(send(e.a, "y", 1, 0), 1);
	EQ(events_of(set, NULL, QUIET), 0);
	EQ(epoll_ctl(set, EPOLL_CTL_MOD, e.b, &event), 0);
	EQ(events_of(set, NULL, SOON), 1);
	EQ(close(set), 0);
	ends_close(e);
}

SOCKETS("epoll.exclusive")
{
	struct ends e = ends_of(kind);
	struct epoll_event event = {.events = EPOLLIN};
	int one = a_poll(), two = a_poll();

	watch(one, e.b, EPOLLIN | EPOLLEXCLUSIVE);
	watch(two, e.b, EPOLLIN | EPOLLEXCLUSIVE);
	make_ready(e);
	CHECK(events_of(one, NULL, 10) + events_of(two, NULL, 10) >= 1);
	FAILS(epoll_ctl(one, EPOLL_CTL_MOD, e.b, &event), EINVAL);
	EQ(epoll_ctl(one, EPOLL_CTL_DEL, e.b, NULL), 0);
	EQ(close(one), 0);
	EQ(close(two), 0);
	ends_close(e);
}

SOCKETS("epoll.out-and-mod")
{
	struct ends e = ends_of(kind);
	struct epoll_event event = {.events = EPOLLIN}, got = {};
	int set = a_poll();

	watch(set, e.b, EPOLLOUT);
	EQ(events_of(set, &got, SOON), 1);
	EQ(got.events, EPOLLOUT);
	EQ(epoll_ctl(set, EPOLL_CTL_MOD, e.b, &event), 0);
	EQ(events_of(set, NULL, 0), 0);
	event.events = EPOLLIN | EPOLLOUT;
	event.data.u32 = 99;
	EQ(epoll_ctl(set, EPOLL_CTL_MOD, e.b, &event), 0);
	EQ(events_of(set, &got, SOON), 1);
	EQ(got.data.u32, 99);
	EQ(close(set), 0);
	ends_close(e);
}

SOCKETS("epoll.deleted-is-quiet")
{
	struct ends e = ends_of(kind);
	int set = a_poll();

	watch(set, e.b, EPOLLIN);
	make_ready(e);
	EQ(epoll_ctl(set, EPOLL_CTL_DEL, e.b, NULL), 0);
	EQ(events_of(set, NULL, 0), 0);
	EQ(close(set), 0);
	ends_close(e);
}

SOCKETS("epoll.errors-of-ctl")
{
	struct ends e = ends_of(kind);
	struct epoll_event event = {.events = EPOLLIN};
	int set = a_poll();

	FAILS(epoll_ctl(set, EPOLL_CTL_MOD, e.b, &event), ENOENT);
	FAILS(epoll_ctl(set, EPOLL_CTL_DEL, e.b, NULL), ENOENT);
	EQ(epoll_ctl(set, EPOLL_CTL_ADD, e.b, &event), 0);
	FAILS(epoll_ctl(set, EPOLL_CTL_ADD, e.b, &event), EEXIST);
	FAILS(epoll_ctl(set, EPOLL_CTL_ADD, set, &event), EINVAL);
	FAILS(epoll_ctl(set, 99, e.b, &event), EINVAL);
	FAILS(epoll_ctl(e.b, EPOLL_CTL_ADD, e.a, &event), EINVAL);
	FAILS(epoll_ctl(-1, EPOLL_CTL_ADD, e.a, &event), EBADF);
	EQ(close(e.b), 0);
	FAILS(epoll_ctl(set, EPOLL_CTL_MOD, e.b, &event), EBADF);
	EQ(close(set), 0);
	EQ(close(e.a), 0);
}

SOCKETS("epoll.closed-leaves-the-set")
{
	struct ends e = ends_of(kind);
	int set = a_poll();

	watch(set, e.b, EPOLLIN | EPOLLOUT);
	EQ(close(e.b), 0);
	EQ(events_of(set, NULL, 0), 0);
	/* The number is taken by another, which the set does not know. */
	struct ends other = ends_of(kind);
	EQ(events_of(set, NULL, 0), 0);
	ends_close(other);
	EQ(close(set), 0);
	EQ(close(e.a), 0);
}

SOCKETS("epoll.a-copy-keeps-a-closed-one-in-the-set")
{
	struct ends e = ends_of(kind);
	int set = a_poll(), copy = dup(e.b);

	NEED(copy >= 0);
	watch(set, e.b, EPOLLIN);
	EQ(close(e.b), 0);
	EQ(send(e.a, "x", 1, 0), 1);
	/* The description lives: epoll(7), question 6. */
	EQ(events_of(set, NULL, SOON), 1);
	EQ(close(copy), 0);
	EQ(events_of(set, NULL, 0), 0);
	EQ(close(set), 0);
	EQ(close(e.a), 0);
}

SOCKETS("epoll.a-copy-is-added-beside-it")
{
	struct ends e = ends_of(kind);
	int set = a_poll(), copy = dup(e.b);

	NEED(copy >= 0);
	watch(set, e.b, EPOLLIN);
	watch(set, copy, EPOLLIN);
	make_ready(e);
	EQ(events_of(set, NULL, SOON), 2);
	EQ(close(copy), 0);
	EQ(close(set), 0);
	ends_close(e);
}

SOCKETS("epoll.several-ready-are-told-in-turns")
{
	struct ends e[6];
	struct epoll_event events[2];
	int set = a_poll(), seen = 0;

	for (int i = 0; i < 6; i++) {
		e[i] = ends_of(kind);
		struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
		NEED(epoll_ctl(set, EPOLL_CTL_ADD, e[i].b, &event) == 0);
		make_ready(e[i]);
	}
	/* Two at a time: nobody starves. */
	for (int i = 0; i < 3; i++) {
		EQ(TEMP_FAILURE_RETRY(epoll_wait(set, events, 2, SOON)), 2);
		seen |= 1 << events[0].data.u32 | 1 << events[1].data.u32;
	}
	EQ(seen, 63);
	for (int i = 0; i < 6; i++)
		ends_close(e[i]);
	EQ(close(set), 0);
}

SOCKETS("epoll.inside-epoll")
{
	struct ends e = ends_of(kind);
	struct epoll_event got = {};
	int inner = a_poll(), outer = a_poll();

	watch(inner, e.b, EPOLLIN);
	watch(outer, inner, EPOLLIN);
	EQ(events_of(outer, NULL, 0), 0);
	make_ready(e);
	EQ(events_of(outer, &got, SOON), 1);
	EQ(got.data.u64, (uint64_t)inner | 0x1234500000000);
	EQ(events_of(inner, NULL, SOON), 1);
	take(e.b);
	EQ(events_of(outer, NULL, 0), 0);
	EQ(close(inner), 0);
	EQ(close(outer), 0);
	ends_close(e);
}

SOCKETS("epoll.is-pollable")
{
	struct ends e = ends_of(kind);
	int set = a_poll();

	watch(set, e.b, EPOLLIN);
	EQ(wait_for(set, POLLIN, 0), 0);
	make_ready(e);
	EQ(wait_for(set, POLLIN, SOON), POLLIN);
	EQ(select_one(set, false, SOON), 1);
	EQ(close(set), 0);
	ends_close(e);
}

STREAMS("epoll.ended-stream")
{
	struct ends e = ends_of(kind);
	struct epoll_event got = {};
	int set = a_poll();

	watch(set, e.b, EPOLLIN | EPOLLRDHUP);
	EQ(shutdown(e.a, SHUT_WR), 0);
	EQ(events_of(set, &got, SOON), 1);
	EQ(got.events, EPOLLIN | EPOLLRDHUP);
	EQ(close(set), 0);
	ends_close(e);
}

STREAMS("epoll.listener")
{
	int listener = a_listener(kind, 4), set = a_poll(), fd = a_socket(kind);
	struct name name = name_of(listener);

	watch(listener >= 0 ? set : -1, listener, EPOLLIN);
	EQ(events_of(set, NULL, 0), 0);
	NEED(connect(fd, &name.any, name.length) == 0);
	EQ(events_of(set, NULL, SOON), 1);
	int got = accept(listener, NULL, NULL);
	NEED(got >= 0);
	EQ(events_of(set, NULL, 0), 0);
	EQ(close(got), 0);
	EQ(close(fd), 0);
	EQ(close(set), 0);
	EQ(close(listener), 0);
}

SOCKETS("epoll_pwait2")
{
	calm();
	struct ends e = ends_of(kind);
	struct epoll_event got;
	struct timespec limit = {0, 20000000};
	int set = a_poll();

	watch(set, e.b, EPOLLIN);
	double start = now();
	int result = epoll_pwait2(set, &got, 1, &limit, NULL);
	if (result < 0 && errno == ENOSYS)
		SKIP("this kernel has no epoll_pwait2");
	EQ(result, 0);
	CHECK(now() - start >= 0.019);
	make_ready(e);
	EQ(epoll_pwait2(set, &got, 1, &limit, NULL), 1);
	EQ(close(set), 0);
	ends_close(e);
}

CASE("epoll.creation")
{
	int fd = epoll_create(1);

	NEED(fd >= 0);
	EQ(fcntl(fd, F_GETFD), 0);
	EQ(close(fd), 0);
	FAILS(epoll_create(0), EINVAL);
	FAILS(epoll_create1(99), EINVAL);
	fd = epoll_create1(EPOLL_CLOEXEC);
	EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	EQ(close(fd), 0);
}

CASE("epoll.wait-of-wrong-things")
{
	struct epoll_event event;
	int set = a_poll();

	FAILS(epoll_wait(set, &event, 0, 0), EINVAL);
	FAILS(epoll_wait(-1, &event, 1, 0), EBADF);
	FAILS(epoll_wait(0, &event, 1, 0), EINVAL);
	EQ(close(set), 0);
}

/* --- waiting with signals */

static volatile bool over;

/* Again and again: the first may come before the wait. */
static void *signal_often(void *of)
{
	pthread_t *to = of;

	while (!over) {
		sleep_ms(20);
		pthread_kill(*to, SIGUSR1);
	}
	return NULL;
}

enum waiting { BY_POLL, BY_PPOLL, BY_SELECT, BY_PSELECT, BY_EPOLL, BY_EPOLL_PWAIT, WAITINGS };
static const char *const waitings[] = {"poll", "ppoll", "select", "pselect", "epoll_wait", "epoll_pwait"};

static int wait_by(enum waiting how, int fd, const sigset_t *mask)
{
	struct pollfd p = {fd, POLLIN, 0};
	struct timespec limit = {2, 0};
	struct timeval limit_us = {2, 0};
	struct epoll_event event = {.events = EPOLLIN};
	fd_set in;
	int set;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	switch (how) {
	case BY_POLL: return poll(&p, 1, 2000);
	case BY_PPOLL: return ppoll(&p, 1, &limit, mask);
	case BY_SELECT: return select(fd + 1, &in, NULL, NULL, &limit_us);
	case BY_PSELECT: return pselect(fd + 1, &in, NULL, NULL, &limit, mask);
	default:
		set = a_poll();
		NEED(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
		return how == BY_EPOLL ? epoll_wait(set, &event, 1, 2000) : epoll_pwait(set, &event, 1, 2000, mask);
	}
}

/* None of them is taken up again after a signal, SA_RESTART or not (signal(7)). */
static void interrupted(long both)
{
	calm();
	struct ends e = ends_of(TCP4);
	pthread_t self = pthread_self(), thread;

	catch_signal(SIGUSR1, both & 1 ? SA_RESTART : 0);
	NEED(pthread_create(&thread, NULL, signal_often, &self) == 0);
	double start = now();
	FAILS(wait_by((enum waiting)(both >> 1), e.b, NULL), EINTR);
	over = true;
	CHECK(now() - start < 1.5);
	CHECK(caught >= 1);
	join_soon(thread, NULL);
	ends_close(e);
}

/* A signal that is blocked before and let in by the mask: taken within the wait, never before it. */
static void masked(long how)
{
	calm();
	struct ends e = ends_of(TCP4);
	sigset_t block, inside;

	catch_signal(SIGUSR1, 0);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	NEED(pthread_sigmask(SIG_BLOCK, &block, &inside) == 0);
	NEED(raise(SIGUSR1) == 0);
	EQ(caught, 0);
	FAILS(wait_by((enum waiting)how, e.b, &inside), EINTR);
	EQ(caught, 1);
	/* And blocked again. */
	NEED(raise(SIGUSR1) == 0);
	EQ(caught, 1);
	ends_close(e);
}

CASES
{
	for (long i = 0; i < WAITINGS; i++) {
		ADD(interrupted, 2 * i, "signal.%s-is-interrupted", waitings[i]);
		ADD(interrupted, 2 * i + 1, "signal.%s-is-interrupted-with-restart-too", waitings[i]);
	}
	ADD(masked, BY_PPOLL, "signal.ppoll-lets-it-in");
	ADD(masked, BY_PSELECT, "signal.pselect-lets-it-in");
	ADD(masked, BY_EPOLL_PWAIT, "signal.epoll_pwait-lets-it-in");
}

/* --- waiting in threads */

struct waiter {
	enum waiting how;
	int fd, result;
};

static void *wait_in_thread(void *of)
{
	struct waiter *w = of;

	do
		w->result = wait_by(w->how, w->fd, NULL);
	while (w->result < 0 && errno == EINTR);
	return NULL;
}

static void woken(long how)
{
	for (long kind = 0; kind < KINDS; kind++) {
		struct ends e = ends_of(kind);
		struct waiter w = {(enum waiting)how, e.b, -1};
		pthread_t thread;
		NEED(pthread_create(&thread, NULL, wait_in_thread, &w) == 0);
		sleep_ms(10);
		EQ(send(e.a, "x", 1, 0), 1);
		join_soon(thread, NULL);
		EQ(w.result, 1);
		ends_close(e);
	}
}

CASES
{
	for (long i = 0; i < WAITINGS; i++)
		ADD(woken, i, "wake.%s-in-a-thread", waitings[i]);
}

SOCKETS("epoll.added-while-another-thread-waits")
{
	struct ends e = ends_of(kind), other = ends_of(kind);
	int set = a_poll();
	pthread_t thread;
	struct waiter w = {BY_POLL, set, -1};

	NEED(pthread_create(&thread, NULL, wait_in_thread, &w) == 0);
	sleep_ms(10);
	make_ready(e);
	watch(set, e.b, EPOLLIN);
	join_soon(thread, NULL);
	EQ(w.result, 1);
	EQ(close(set), 0);
	ends_close(e);
	ends_close(other);
}
