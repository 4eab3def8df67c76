/* Asking whether a socket is ready. */
#include "ready.h"

void make_ready(struct ends e)
{
	EQ(send(e.a, "x", 1, 0), 1);
	NEED(is_readable(e.b));
}

void take_some(int fd)
{
	char got[64];

	CHECK(recv(fd, got, sizeof(got), MSG_DONTWAIT) > 0);
}

int select_one(int fd, bool for_writing, int ms)
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

int a_poll(void)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	NEED(fd >= 0);
	return fd;
}

void watch(int set, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.u64 = (uint64_t)fd | 0x1234500000000};

	NEED(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

int events_of(int set, struct epoll_event *got, int ms)
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
