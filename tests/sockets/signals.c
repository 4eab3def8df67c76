/* Signals and cancellation in the middle of a call. */
#include "waiter.h"

/* --- a signal in the middle */

/* Signals a thread until it has ended: the first may come before it is in its call. */
static bool interrupted_to_end(pthread_t thread)
{
	double end = deadline();
	int error;

	while ((error = pthread_tryjoin_np(thread, NULL)) == EBUSY && now() < end) {
		pthread_kill(thread, SIGUSR1);
		sleep_ms(10);
	}
	return CHECKF(error == 0, "the thread did not end");
}

/* Signals a thread, and waits until the handler ran. */
static void interrupt_once(pthread_t thread)
{
	double end = deadline();
	int before = caught;

	EQ(pthread_kill(thread, SIGUSR1), 0);
	while (caught == before && now() < end)
		sleep_ms(1);
	EQ(caught, before + 1);
}

SOCKETS("signal-without-restart-is-eintr")
{
	calm();
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.b};

	catch_signal(SIGUSR1, 0);
	pthread_t thread = waiting(&w, wait_recv);
	NEED(interrupted_to_end(thread));
	EQ(w.result, -1);
	EQ(w.error, EINTR);
	CHECK(caught >= 1);
	ends_close(e);
}

SOCKETS("signal-with-restart-waits-on")
{
	calm();
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.b};

	catch_signal(SIGUSR1, SA_RESTART);
	pthread_t thread = waiting(&w, wait_recv);
	interrupt_once(thread);
	EQ(send(e.a, "data", 4, 0), 4);
	NEED(join_soon(thread, NULL));
	EQ(w.result, 4);
	ends_close(e);
}

SOCKETS("signal-with-restart-and-a-timeout-is-eintr")
{
	calm();
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.b};
	struct timeval limit = {2 * patience / 1000, 0};

	/* signal(7): calls with SO_RCVTIMEO set are never taken up again. */
	NEED(setsockopt(e.b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
	catch_signal(SIGUSR1, SA_RESTART);
	pthread_t thread = waiting(&w, wait_recv);
	NEED(interrupted_to_end(thread));
	EQ(w.result, -1);
	EQ(w.error, EINTR);
	ends_close(e);
}

STREAMS("signal-in-accept-is-eintr")
{
	calm();
	struct waiter w = {.fd = a_listener(kind, 4)};

	catch_signal(SIGUSR1, 0);
	pthread_t thread = waiting(&w, wait_accept);
	NEED(interrupted_to_end(thread));
	EQ(w.result, -1);
	EQ(w.error, EINTR);
	EQ(close(w.fd), 0);
}

STREAMS("signal-in-send-tells-what-was-taken")
{
	calm();
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.a};

	catch_signal(SIGUSR1, 0);
	pthread_t thread = waiting(&w, wait_send);
	NEED(interrupted_to_end(thread));
	CHECK(w.result > 0 && w.result < 1 << 22);
	ends_close(e);
}

static struct ends in_handler;
static volatile ssize_t handled;

static void send_in_handler(int signal)
{
	int before = errno;

	(void)signal;
	handled = send(in_handler.a, "sig", 3, MSG_DONTWAIT | MSG_NOSIGNAL);
	errno = before;
}

SOCKETS("send-in-a-signal-handler-wakes-the-interrupted-recv")
{
	calm();
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.b};
	struct sigaction action = {.sa_handler = send_in_handler, .sa_flags = SA_RESTART};

	in_handler = e;
	NEED(sigaction(SIGUSR1, &action, NULL) == 0);
	pthread_t thread = waiting(&w, wait_recv);
	EQ(pthread_kill(thread, SIGUSR1), 0);
	/* Sent before the call or within it: either way it is received. */
	NEED(join_soon(thread, NULL));
	EQ(handled, 3);
	EQ(w.result, 3);
	ends_close(e);
}

/* A handler that uses every kind of call while the interrupted code is in the middle of the same calls. */
static void busy_handler(int signal)
{
	int before = errno;
	char octet;
	struct pollfd p = {in_handler.b, POLLIN, 0};

	(void)signal;
	int copy = dup(in_handler.a);
	if (copy >= 0) {
		poll(&p, 1, 0);
		recv(in_handler.b, &octet, 1, MSG_PEEK | MSG_DONTWAIT);
		close(copy);
	}
	handled++;
	errno = before;
}

STREAMS("calls-in-a-handler-amid-the-same-calls")
{
	struct ends e = ends_of(kind), other = ends_of(kind);
	struct sigaction action = {.sa_handler = busy_handler, .sa_flags = SA_RESTART};
	char octet;

	in_handler = e;
	NEED(sigaction(SIGALRM, &action, NULL) == 0);
	struct itimerval timer = {{0, 100}, {0, 100}};
	NEED(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	for (int i = 0; i < 5000; i++) {
		int copy = dup(other.a);
		if (send(copy, "x", 1, 0) != 1 || recv(other.b, &octet, 1, 0) != 1)
			CHECK(!"an octet went and came");
		close(copy);
	}
	calm();
	CHECK(handled > 0);
	ends_close(e);
	ends_close(other);
}

/* --- cancellation: these calls are cancellation points (pthreads(7)) */

enum call { BY_RECV, BY_RECVFROM, BY_RECVMSG, BY_READ, BY_READV, BY_ACCEPT, BY_POLL, BY_SELECT, BY_EPOLL, BY_SEND, BY_WRITE,
	    BY_CONNECT_NOT, CALLS = BY_CONNECT_NOT };
static const char *const call_names[] = {"recv", "recvfrom", "recvmsg", "read",	 "readv", "accept",
					 "poll", "select",   "epoll_wait", "send", "write"};

struct cancelled {
	enum call call;
	int fd, cleaned;
	pid_t tid;
	bool asked;
};

static void clean(void *of)
{
	((struct cancelled *)of)->cleaned = 1;
}

static void *be_cancelled(void *of)
{
	struct cancelled *c = of;
	/* More than the buffers of both ends may grow to. */
	static char octets[1 << 26];
	struct iovec v = {octets, 16};
	struct msghdr msg = {.msg_iov = &v, .msg_iovlen = 1};
	struct pollfd p = {c->fd, POLLIN, 0};
	struct epoll_event event = {.events = EPOLLIN};
	fd_set in;
	int set;

	FD_ZERO(&in);
	FD_SET(c->fd, &in);
	tell(&c->tid);
	pthread_cleanup_push(clean, c);
	switch (c->call) {
	case BY_RECV: recv(c->fd, octets, 16, 0); break;
	case BY_RECVFROM: recvfrom(c->fd, octets, 16, 0, NULL, NULL); break;
	case BY_RECVMSG: recvmsg(c->fd, &msg, 0); break;
	case BY_READ: v.iov_len = (size_t)read(c->fd, octets, 16); break;
	case BY_READV: v.iov_len = (size_t)readv(c->fd, &v, 1); break;
	case BY_ACCEPT: accept(c->fd, NULL, NULL); break;
	case BY_POLL: poll(&p, 1, -1); break;
	case BY_SELECT: select(c->fd + 1, &in, NULL, NULL, NULL); break;
	case BY_EPOLL:
		set = epoll_create1(0);
		epoll_ctl(set, EPOLL_CTL_ADD, c->fd, &event);
		epoll_wait(set, &event, 1, -1);
		break;
	case BY_SEND: send(c->fd, octets, sizeof(octets), MSG_NOSIGNAL); break;
	default: v.iov_len = (size_t)write(c->fd, octets, sizeof(octets)); break;
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancel(long call)
{
	calm();
	struct ends e = ends_of(TCP4);
	struct cancelled c = {.call = (enum call)call, .fd = call == BY_ACCEPT ? a_listener(TCP4, 1) : e.b};
	pthread_t thread;
	void *result = NULL;

	NEED(pthread_create(&thread, NULL, be_cancelled, &c) == 0);
	until_asleep(&c.tid);
	EQ(pthread_cancel(thread), 0);
	NEED(join_soon(thread, &result));
	CHECK(result == PTHREAD_CANCELED);
	EQ(c.cleaned, 1);
	/* Nothing is left locked. */
	char got[8];
	EQ(send(e.a, "x", 1, MSG_NOSIGNAL), 1);
	EQ(recv(e.b, got, 8, 0), 1);
	if (call != BY_SEND && call != BY_WRITE) {
		EQ(send(e.b, "x", 1, MSG_NOSIGNAL), 1);
		EQ(recv(e.a, got, 8, 0), 1);
	}
	ends_close(e);
}

CASES
{
	for (long i = 0; i < CALLS; i++)
		ADD(cancel, i, "cancel.in-%s", call_names[i]);
}

static void *cancelled_before(void *of)
{
	struct cancelled *c = of;
	char octet;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	while (!__atomic_load_n(&c->asked, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	/* Off: the call is made. */
	if (recv(c->fd, &octet, 1, 0) == 1)
		c->cleaned++;
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	/* On, and asked for already: the call is not. */
	if (recv(c->fd, &octet, 1, 0) == 1)
		c->cleaned += 10;
	return NULL;
}

SOCKETS("cancel-asked-before-takes-nothing")
{
	struct ends e = ends_of(kind);
	struct cancelled c = {.fd = e.b};
	pthread_t thread;
	void *result = NULL;
	char got[8];

	EQ(send(e.a, "1", 1, 0), 1);
	EQ(send(e.a, "2", 1, 0), 1);
	NEED(pthread_create(&thread, NULL, cancelled_before, &c) == 0);
	EQ(pthread_cancel(thread), 0);
	__atomic_store_n(&c.asked, true, __ATOMIC_RELEASE);
	NEED(join_soon(thread, &result));
	CHECK(result == PTHREAD_CANCELED);
	EQ(c.cleaned, 1);
	EQ(recv(e.b, got, 8, 0), 1);
	EQ(got[0], '2');
	ends_close(e);
}
