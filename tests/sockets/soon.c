/* Waits after many short ones. A thread whose answers came within microseconds may look for the next before it sleeps:
   what ends a wait is what it was. */
#include "env.h"

/* Enough for anybody who learns from them. */
enum { ROUNDS = 200 };

static void *send_back(void *of)
{
	int fd = *(int *)of;
	char octet;

	while (recv(fd, &octet, 1, 0) == 1 && octet != 'q')
		NEED(send(fd, &octet, 1, 0) == 1);
	return NULL;
}

enum by { BY_RECV, BY_READ, BY_RECVMSG, BY_POLL, BY_SELECT, BY_EPOLL, WAYS };
static const char *const ways[] = {"recv", "read", "recvmsg", "poll", "select", "epoll"};

/* Waits for so many milliseconds, where the way has a time of its own. As of poll. */
static int ready_by(enum by how, int fd, int set, int ms)
{
	struct pollfd p = {fd, POLLIN, 0};
	struct timeval time = {ms / 1000, ms % 1000 * 1000};
	struct epoll_event event;
	fd_set in;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	switch (how) {
	case BY_POLL: return poll(&p, 1, ms);
	case BY_SELECT: return select(fd + 1, &in, NULL, NULL, &time);
	case BY_EPOLL: return epoll_wait(set, &event, 1, ms);
	default: return 1;
	}
}

static ssize_t receive_by(enum by how, int fd, char *octet)
{
	struct iovec part = {octet, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	switch (how) {
	case BY_READ: return read(fd, octet, 1);
	case BY_RECVMSG: return recvmsg(fd, &message, 0);
	default: return recv(fd, octet, 1, 0);
	}
}

struct talk {
	struct ends e;
	int set;
	pthread_t thread;
};

/* One end of a pair whose other end has answered often and soon. */
static void talk_soon(struct talk *t, long kind, enum by how)
{
	struct epoll_event event = {.events = EPOLLIN};

	t->e = ends_of(kind);
	NEED((t->set = epoll_create1(0)) >= 0);
	NEED(epoll_ctl(t->set, EPOLL_CTL_ADD, t->e.a, &event) == 0);
	NEED(pthread_create(&t->thread, NULL, send_back, &t->e.b) == 0);
	for (int i = 0; i < ROUNDS; i++) {
		char octet = (char)('A' + i % 26), back = 0;
		NEED(send(t->e.a, &octet, 1, 0) == 1);
		EQ(ready_by(how, t->e.a, t->set, patience), 1);
		EQ(receive_by(how, t->e.a, &back), 1);
		EQ(back, octet);
	}
}

static void talk_ends(struct talk *t)
{
	NEED(send(t->e.a, "q", 1, 0) == 1);
	join_soon(t->thread, NULL);
	close(t->set);
	ends_close(t->e);
}

static void times_out(long how)
{
	for (long kind = 0; kind < KINDS; kind++) {
		struct timeval time = {0, QUIET * 1000};
		struct talk t;
		char octet;

		talk_soon(&t, kind, (enum by)how);
		NEED(setsockopt(t.e.a, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
		for (int i = 0; i < 3; i++) {
			double begun = now();
			if (how < BY_POLL)
				FAILS(receive_by((enum by)how, t.e.a, &octet), EAGAIN);
			else
				EQ(ready_by((enum by)how, t.e.a, t.set, QUIET), 0);
			/* The kernel counts in ticks of some milliseconds. */
			CHECK(now() - begun > QUIET / 1000.0 * 0.8);
		}
		talk_ends(&t);
	}
}

static void does_not_wait(long how)
{
	for (long kind = 0; kind < KINDS; kind++) {
		struct talk t;
		char octet;

		talk_soon(&t, kind, (enum by)how);
		set_nonblocking(t.e.a, true);
		for (int i = 0; i < ROUNDS; i++) {
			if (how < BY_POLL)
				FAILS(receive_by((enum by)how, t.e.a, &octet), EAGAIN);
			else
				EQ(ready_by((enum by)how, t.e.a, t.set, 0), 0);
		}
		talk_ends(&t);
	}
}

static void *shut_later(void *of)
{
	sleep_ms(QUIET);
	NEED(shutdown(*(int *)of, SHUT_RD) == 0);
	return NULL;
}

/* Receiving ends within a wait, or before it. */
static void ends_with_receiving(long how)
{
	for (long kind = 0; kind < 2 * KINDS; kind++) {
		bool later = kind >= KINDS;
		struct talk t;
		pthread_t thread;
		char octet;

		talk_soon(&t, kind % KINDS, (enum by)how);
		if (later)
			NEED(pthread_create(&thread, NULL, shut_later, &t.e.a) == 0);
		else
			NEED(shutdown(t.e.a, SHUT_RD) == 0);
		for (int i = 0; i < 2; i++) {
			EQ(ready_by((enum by)how, t.e.a, t.set, patience), 1);
			EQ(receive_by((enum by)how, t.e.a, &octet), 0);
		}
		if (later)
			join_soon(thread, NULL);
		talk_ends(&t);
	}
}

static volatile bool over;

static void *signal_often(void *of)
{
	while (!over) {
		sleep_ms(QUIET / 3);
		pthread_kill(*(pthread_t *)of, SIGUSR1);
	}
	return NULL;
}

static void is_interrupted(long how)
{
	pthread_t self = pthread_self(), thread;
	char octet;

	calm();
	for (long kind = 0; kind < KINDS; kind++) {
		struct talk t;

		talk_soon(&t, kind, (enum by)how);
		catch_signal(SIGUSR1, 0);
		over = false;
		NEED(pthread_create(&thread, NULL, signal_often, &self) == 0);
		if (how < BY_POLL)
			FAILS(receive_by((enum by)how, t.e.a, &octet), EINTR);
		else
			FAILS(ready_by((enum by)how, t.e.a, t.set, 2 * patience), EINTR);
		over = true;
		join_soon(thread, NULL);
		talk_ends(&t);
	}
}

CASES
{
	for (long i = 0; i < WAYS; i++) {
		ADD(times_out, i, "soon.%s-times-out-after-short-waits", ways[i]);
		ADD(does_not_wait, i, "soon.%s-does-not-wait-where-it-may-not", ways[i]);
		ADD(ends_with_receiving, i, "soon.%s-ends-with-receiving", ways[i]);
		ADD(is_interrupted, i, "soon.%s-is-interrupted-after-short-waits", ways[i]);
	}
}
