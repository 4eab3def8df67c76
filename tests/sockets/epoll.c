/* Readiness by epoll in every mode, over descriptors, copies and closed ones. */
#include "ready.h"

SOCKETS("epoll.level-triggered")
{
	struct ends e = ends_of(kind);
	struct epoll_event got = {};
	int set = a_poll();

	watch(set, e.b, EPOLLIN);
	EQ(events_of(set, NULL, 0), 0);
	make_ready(e);
	EQ(events_of(set, &got, patience), 1);
	EQ(got.events, EPOLLIN);
	EQ(got.data.u64, (uint64_t)e.b | 0x1234500000000);
	EQ(events_of(set, NULL, patience), 1);
	take_some(e.b);
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
	EQ(events_of(set, NULL, patience), 1);
	EQ(events_of(set, NULL, QUIET), 0);
	/* More comes: another edge, though the first was not taken. */
	EQ(send(e.a, "y", 1, 0), 1);
	EQ(events_of(set, NULL, patience), 1);
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
	EQ(events_of(set, NULL, patience), 1);
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
	EQ(events_of(set, NULL, patience), 1);
	EQ(events_of(set, NULL, 0), 0);
	EQ(epoll_ctl(set, EPOLL_CTL_MOD, e.b, &event), 0);
	EQ(events_of(set, NULL, patience), 1);
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
	EQ(events_of(set, NULL, patience), 1);
	EQ(events_of(set, NULL, QUIET), 0);
	EQ(send(e.a, "y", 1, 0), 1);
	EQ(events_of(set, NULL, QUIET), 0);
	EQ(epoll_ctl(set, EPOLL_CTL_MOD, e.b, &event), 0);
	EQ(events_of(set, NULL, patience), 1);
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
	EQ(events_of(set, &got, patience), 1);
	EQ(got.events, EPOLLOUT);
	EQ(epoll_ctl(set, EPOLL_CTL_MOD, e.b, &event), 0);
	EQ(events_of(set, NULL, 0), 0);
	event.events = EPOLLIN | EPOLLOUT;
	event.data.u32 = 99;
	EQ(epoll_ctl(set, EPOLL_CTL_MOD, e.b, &event), 0);
	EQ(events_of(set, &got, patience), 1);
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
	EQ(events_of(set, NULL, patience), 1);
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
	EQ(events_of(set, NULL, patience), 2);
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
		EQ(TEMP_FAILURE_RETRY(epoll_wait(set, events, 2, patience)), 2);
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
	EQ(events_of(outer, &got, patience), 1);
	EQ(got.data.u64, (uint64_t)inner | 0x1234500000000);
	EQ(events_of(inner, NULL, patience), 1);
	take_some(e.b);
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
	EQ(wait_for(set, POLLIN, patience), POLLIN);
	EQ(select_one(set, false, patience), 1);
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
	EQ(events_of(set, &got, patience), 1);
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
	EQ(events_of(set, NULL, patience), 1);
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
