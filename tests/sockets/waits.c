/* Waits for readiness: what signals and other threads do to them. */
#include "ready.h"
#include "waiter.h"

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

/* Waits longer than anything that ends the wait takes. */
static int wait_by(enum waiting how, int fd, const sigset_t *mask)
{
	int longest = 2 * patience;
	struct pollfd p = {fd, POLLIN, 0};
	struct timespec limit = {longest / 1000, 0};
	struct timeval limit_us = {longest / 1000, 0};
	struct epoll_event event = {.events = EPOLLIN};
	fd_set in;
	int set;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	switch (how) {
	case BY_POLL: return poll(&p, 1, longest);
	case BY_PPOLL: return ppoll(&p, 1, &limit, mask);
	case BY_SELECT: return select(fd + 1, &in, NULL, NULL, &limit_us);
	case BY_PSELECT: return pselect(fd + 1, &in, NULL, NULL, &limit, mask);
	default:
		set = a_poll();
		NEED(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
		return how == BY_EPOLL ? epoll_wait(set, &event, 1, longest)
				       : epoll_pwait(set, &event, 1, longest, mask);
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
	double end = deadline();
	FAILS(wait_by((enum waiting)(both >> 1), e.b, NULL), EINTR);
	over = true;
	/* By the signal, not at the end of its time. */
	CHECK(now() < end);
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

struct wait {
	enum waiting how;
	int fd, result;
	pid_t tid;
};

static void *wait_in_thread(void *of)
{
	struct wait *w = of;

	tell(&w->tid);
	do
		w->result = wait_by(w->how, w->fd, NULL);
	while (w->result < 0 && errno == EINTR);
	return NULL;
}

static void woken(long how)
{
	for (long kind = 0; kind < KINDS; kind++) {
		struct ends e = ends_of(kind);
		struct wait w = {(enum waiting)how, e.b, -1, 0};
		pthread_t thread;
		NEED(pthread_create(&thread, NULL, wait_in_thread, &w) == 0);
		until_asleep(&w.tid);
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
	struct wait w = {BY_POLL, set, -1, 0};

	NEED(pthread_create(&thread, NULL, wait_in_thread, &w) == 0);
	until_asleep(&w.tid);
	make_ready(e);
	watch(set, e.b, EPOLLIN);
	join_soon(thread, NULL);
	EQ(w.result, 1);
	EQ(close(set), 0);
	ends_close(e);
	ends_close(other);
}
