/* Waits by the numbers of system calls, past the names of the C library: runtimes and static code wait like this. What
   they are told is what a program then finds by its ordinary calls. */
#include "flow.h"
#include "ready.h"
#include "waiter.h"

#include <sys/syscall.h>

enum raw { RAW_PPOLL, RAW_PSELECT6, RAW_EPOLL_PWAIT, RAW_POLL, RAW_SELECT, RAW_EPOLL_WAIT, RAWS };
static const char *const raw_names[RAWS] = {"ppoll", "pselect6", "epoll_pwait", "poll", "select", "epoll_wait"};

static struct timespec time_of(int ms)
{
	return (struct timespec){ms / 1000, ms % 1000 * 1000000L};
}

static long raw_poll(bool old, struct pollfd *p, int ms)
{
	struct timespec limit = time_of(ms);

#ifdef SYS_poll
	if (old)
		return syscall(SYS_poll, p, 1, ms);
#endif
	if (old)
		SKIP("this architecture has no such call");
	return syscall(SYS_ppoll, p, 1, &limit, NULL, (size_t)8);
}

static long raw_select(bool old, int fd, fd_set *in, fd_set *out, int ms)
{
	struct timespec limit = time_of(ms);
	struct {
		const sigset_t *mask;
		size_t size;
	} mask = {NULL, 8};

#ifdef SYS_select
	struct timeval old_limit = {limit.tv_sec, limit.tv_nsec / 1000};
	if (old)
		return syscall(SYS_select, fd + 1, in, out, NULL, &old_limit);
#endif
	if (old)
		SKIP("this architecture has no such call");
	return syscall(SYS_pselect6, fd + 1, in, out, NULL, &limit, &mask);
}

static long raw_epoll(bool old, int set, struct epoll_event *event, int ms)
{
#ifdef SYS_epoll_wait
	if (old)
		return syscall(SYS_epoll_wait, set, event, 1, ms);
#endif
	if (old)
		SKIP("this architecture has no such call");
	return syscall(SYS_epoll_pwait, set, event, 1, ms, NULL, (size_t)8);
}

/* One wait: what is ready, of POLLIN and POLLOUT; -1 when interrupted. */
static int wait_once(enum raw how, int fd, int events, int ms)
{
	struct pollfd p = {fd, (short)events, 0};
	struct epoll_event event = {.events = (uint32_t)events};
	fd_set in, out;
	long got;

	switch (how) {
	case RAW_PPOLL:
	case RAW_POLL:
		got = raw_poll(how == RAW_POLL, &p, ms);
		return got > 0 ? p.revents & events : (int)got;
	case RAW_PSELECT6:
	case RAW_SELECT:
		FD_ZERO(&in);
		FD_ZERO(&out);
		if (events & POLLIN)
			FD_SET(fd, &in);
		if (events & POLLOUT)
			FD_SET(fd, &out);
		got = raw_select(how == RAW_SELECT, fd, &in, &out, ms);
		return got > 0 ? (FD_ISSET(fd, &in) ? POLLIN : 0) | (FD_ISSET(fd, &out) ? POLLOUT : 0) : (int)got;
	default: break;
	}
	int set = (int)syscall(SYS_epoll_create1, 0);
	NEED(set >= 0 && syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, &event) == 0);
	got = raw_epoll(how == RAW_EPOLL_WAIT, set, &event, ms);
	int error = errno;
	NEED(close(set) == 0);
	errno = error;
	return got > 0 ? (int)event.events & events : (int)got;
}

static int raw_wait(enum raw how, int fd, int events, int ms)
{
	double end = now() + ms / 1e3;
	int got;

	do {
		int left = (int)((end - now()) * 1e3 + 0.999);
		got = wait_once(how, fd, events, left > 0 ? left : 0);
	} while (got < 0 && errno == EINTR);
	return got;
}

static void finds_what_is_there(long both)
{
	struct ends e = ends_of(both % 2 ? TCP6 : TCP4);
	enum raw how = (enum raw)(both / 2);
	struct flow out = {1, 0}, in = out;

	EQ(raw_wait(how, e.a, POLLIN | POLLOUT, patience), POLLOUT);
	EQ(raw_wait(how, e.b, POLLIN, QUIET), 0);
	NEED(flow_send(&out, e.a, 300) && flow_send(&out, e.a, 100));
	EQ(raw_wait(how, e.b, POLLIN, patience), POLLIN);
	NEED(octets_come(e.b, 400));
	/* To the last octet. */
	for (int i = 0; i < 8; i++) {
		EQ(raw_wait(how, e.b, POLLIN, 0), POLLIN);
		NEED(flow_recv(&in, e.b, 50));
	}
	EQ(raw_wait(how, e.b, POLLIN, QUIET), 0);
	EQ(raw_wait(how, e.a, POLLIN, 0), 0);
	EQ(shutdown(e.a, SHUT_WR), 0);
	EQ(raw_wait(how, e.b, POLLIN, patience), POLLIN);
	EQ(recv(e.b, &in, 1, 0), 0);
	ends_close(e);
}

static void finds_room(long both)
{
	struct ends e = tight_ends(both % 2 ? TCP6 : TCP4);
	enum raw how = (enum raw)(both / 2);
	struct flow out = {2, 0}, in = out;
	double end = deadline();

	/* Octets that the kernel holds move on with its next probe of the window, 200 ms later. */
	do
		flow_fill(&out, e.a);
	while (raw_wait(how, e.a, POLLOUT, 250) && now() < end);
	EQ(raw_wait(how, e.a, POLLOUT, 0), 0);
	NEED(flow_recv(&in, e.b, out.at));
	EQ(raw_wait(how, e.a, POLLOUT, patience), POLLOUT);
	EQ(raw_wait(how, e.b, POLLIN, QUIET), 0);
	ends_close(e);
}

struct raw_waiter {
	enum raw how;
	int fd, result;
	pid_t tid;
};

static void *wait_in_thread(void *of)
{
	struct raw_waiter *w = of;

	tell(&w->tid);
	w->result = raw_wait(w->how, w->fd, POLLIN, 2 * patience);
	return NULL;
}

static void is_woken(long both)
{
	struct ends e = ends_of(both % 2 ? TCP6 : TCP4);
	struct raw_waiter w = {(enum raw)(both / 2), e.b, -1, 0};
	struct flow out = {3, 0}, in = out;
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, wait_in_thread, &w) == 0);
	until_asleep(&w.tid);
	NEED(flow_send(&out, e.a, 30));
	NEED(join_soon(thread, NULL));
	EQ(w.result, POLLIN);
	NEED(flow_recv(&in, e.b, 30));
	ends_close(e);
}

/* A reader that waits by the number and reads by the name: it gets all of a flow in odd sizes. */
static void reads_a_flow(long both)
{
	struct ends e = ends_of(both % 2 ? TCP6 : TCP4);
	struct flow out = {4, 0}, in = out;
	char octets[5000];
	unsigned seed = 4;
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		while (out.at < 300000)
			NEED(flow_send(&out, e.a, 1 + any_below(&seed, 30000)));
		_exit(0);
	}
	EQ(close(e.a), 0);
	for (;;) {
		NEED(raw_wait((enum raw)(both / 2), e.b, POLLIN, patience) == POLLIN);
		ssize_t got = recv(e.b, octets, 1 + any_below(&seed, sizeof(octets) - 1), MSG_DONTWAIT);
		if (got == 0)
			break;
		NEED(got > 0 && flow_is(&in, octets, (size_t)got));
	}
	CHECK(in.at >= 300000);
	CHECK(child_ended_well(child));
	EQ(close(e.b), 0);
}

CASES
{
	for (long i = 0; i < 2 * RAWS; i++) {
		const char *name = raw_names[i / 2];
		int version = i % 2 ? 6 : 4;
		ADD(finds_what_is_there, i, "tcp%d.unhooked.%s-finds-what-is-there", version, name);
		ADD(finds_room, i, "tcp%d.unhooked.%s-finds-room", version, name);
		ADD(is_woken, i, "tcp%d.unhooked.%s-is-woken", version, name);
		ADD(reads_a_flow, i, "tcp%d.unhooked.%s-reads-a-flow", version, name);
	}
}
