/* The beginning of a connection: who speaks first, what is there before it is accepted, connecting that is interrupted
   or asked for twice, and a socket that is connected anew. */
#include "flow.h"
#include "ready.h"
#include "waiter.h"

static int connected_to(long kind, int listener)
{
	struct name name = name_of(listener);
	int fd = a_socket(kind);

	NEED(connect(fd, &name.any, name.length) == 0);
	return fd;
}

static int accepted(int listener)
{
	int fd = accept(listener, NULL, NULL);

	NEED(fd >= 0);
	return fd;
}

/* --- who speaks first */

TCPS("begin.writes-do-not-wait-for-accept")
{
	int listener = a_listener(kind, 4);
	struct ends e = {.a = connected_to(kind, listener)};
	struct flow out = {1, 0}, in = out;
	int there;

	EQ(wait_for(e.a, POLLIN | POLLOUT, 0), POLLOUT);
	for (int i = 0; i < 5; i++)
		NEED(flow_send(&out, e.a, 200));
	FAILS(recv(e.a, &there, 1, MSG_DONTWAIT), EAGAIN);
	e.b = accepted(listener);
	NEED(octets_come(e.b, 1000));
	EQ(ioctl(e.b, FIONREAD, &there), 0);
	EQ(there, 1000);
	NEED(flow_recv(&in, e.b, 1000));
	flow_both_ways(e);
	EQ(close(listener), 0);
	ends_close(e);
}

TCPS("begin.as-much-as-the-buffers-take-before-accept")
{
	int listener = a_listener(kind, 4);
	struct ends e = {.a = connected_to(kind, listener)};
	struct flow out = {2, 0}, in = out;

	set_int(e.a, SOL_SOCKET, SO_SNDBUF, 100000);
	flow_fill(&out, e.a);
	NEED(shutdown(e.a, SHUT_WR) == 0);
	e.b = accepted(listener);
	CHECK(flow_recv_to_the_end(&in, e.b));
	EQ(in.at, out.at);
	EQ(close(listener), 0);
	ends_close(e);
}

TCPS("begin.the-accepting-side-speaks-first")
{
	struct ends e = ends_of(kind);
	struct flow out = {3, 0}, in = out;

	/* The connecting one has made no call since. */
	NEED(flow_send(&out, e.b, 1000));
	NEED(octets_come(e.a, 1000));
	NEED(flow_recv(&in, e.a, 1000));
	flow_both_ways(e);
	ends_close(e);
}

TCPS("begin.both-speak-at-once")
{
	struct ends e = ends_of(kind);
	struct flow out = {4, 0}, in = out, back = {5, 0}, back_in = back;

	NEED(flow_send(&out, e.a, 500) && flow_send(&back, e.b, 600));
	NEED(flow_recv(&in, e.b, 500) && flow_recv(&back_in, e.a, 600));
	EQ(wait_for(e.a, POLLIN, 0), 0);
	EQ(wait_for(e.b, POLLIN, 0), 0);
	ends_close(e);
}

TCPS("begin.nobody-speaks")
{
	struct ends e = ends_of(kind);
	char got[4];

	EQ(close(e.a), 0);
	EQ(recv(e.b, got, 4, 0), 0);
	EQ(get_int(e.b, SOL_SOCKET, SO_ERROR), 0);
	EQ(close(e.b), 0);
}

TCPS("begin.ended-before-it-is-accepted")
{
	int listener = a_listener(kind, 4);
	struct flow out = {6, 0}, in = out;
	int fd = connected_to(kind, listener);

	NEED(flow_send(&out, fd, 3000) && shutdown(fd, SHUT_WR) == 0);
	int end = accepted(listener);
	CHECK(flow_recv_to_the_end(&in, end));
	EQ(in.at, 3000);
	flow_send(&out, end, 10);
	EQ(close(fd), 0);
	EQ(close(end), 0);
	EQ(close(listener), 0);
}

TCPS("begin.many-wait-with-octets-in-one-thread")
{
	enum { MANY = 60 };
	int listener = a_listener(kind, 2 * MANY), fds[MANY], ports[MANY];

	for (int i = 0; i < MANY; i++) {
		struct flow out = {(unsigned)i, 0};
		fds[i] = connected_to(kind, listener);
		ports[i] = port_of(fds[i]);
		NEED(flow_send(&out, fds[i], 10 + 13 * (size_t)i));
	}
	for (int i = 0; i < MANY; i++) {
		struct name from = {.length = sizeof(from.storage)};
		int end = accept(listener, &from.any, &from.length), at = 0;
		NEED(end >= 0);
		int port = ntohs(kind == TCP6 ? from.in6.sin6_port : from.in.sin_port);
		while (at < MANY && ports[at] != port)
			at++;
		NEED(at < MANY);
		struct flow in = {(unsigned)at, 0}, back = {1000, 0}, back_in = back;
		NEED(flow_recv(&in, end, 10 + 13 * (size_t)at));
		NEED(flow_send(&back, end, 20) && flow_recv(&back_in, fds[at], 20));
		EQ(close(end), 0);
		EQ(close(fds[at]), 0);
	}
	FAILS(accept4(listener, NULL, NULL, (set_nonblocking(listener, true), 0)), EAGAIN);
	EQ(close(listener), 0);
}

TCPS("begin.a-listener-closed-with-some-waiting-resets-them")
{
	int listener = a_listener(kind, 4), fd = connected_to(kind, listener);
	char got[4];

	EQ(send(fd, "lost", 4, 0), 4);
	EQ(close(listener), 0);
	NEED(wait_for(fd, 0, patience) & POLLERR);
	FAILS(recv(fd, got, 4, 0), ECONNRESET);
	EQ(close(fd), 0);
}

TCPS("begin.a-listener-that-waits-for-octets")
{
	int listener = a_listener(kind, 4);
	struct flow out = {9, 0}, in = out;

	/* Accepted with the first octets of the program and not before, within these seconds. */
	set_int(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, 20);
	struct ends e = {.a = connected_to(kind, listener)};
	EQ(wait_for(listener, POLLIN, QUIET), 0);
	NEED(flow_send(&out, e.a, 100));
	EQ(wait_for(listener, POLLIN, patience), POLLIN);
	e.b = accepted(listener);
	EQ(wait_for(e.b, POLLIN, 0), POLLIN);
	NEED(flow_recv(&in, e.b, 100));
	flow_both_ways(e);
	EQ(close(listener), 0);
	ends_close(e);
}

TCPS("begin.fast-open-by-the-first-write")
{
	int listener = a_listener(kind, 4), on = 1;
	struct name name = name_of(listener);
	struct ends e = {.a = a_socket(kind)};
	struct flow out = {10, 0}, in = out;

	if (setsockopt(e.a, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof(on)) != 0)
		SKIP("fast open is off on this machine (net.ipv4.tcp_fastopen)");
	EQ(connect(e.a, &name.any, name.length), 0);
	NEED(flow_send(&out, e.a, 500));
	e.b = accepted(listener);
	NEED(flow_recv(&in, e.b, 500));
	flow_both_ways(e);
	EQ(close(listener), 0);
	ends_close(e);
}

TCPS("begin.accept-taken-up-after-a-signal")
{
	calm();
	struct waiter w = {.fd = a_listener(kind, 4)};

	catch_signal(SIGUSR1, SA_RESTART);
	pthread_t thread = waiting(&w, wait_accept);
	for (int i = 0; i < 4; i++) {
		pthread_kill(thread, SIGUSR1);
		sleep_ms(3);
	}
	struct ends e = {.a = connected_to(kind, w.fd)};
	NEED(join_soon(thread, NULL));
	NEED(w.result >= 0);
	e.b = (int)w.result;
	flow_both_ways(e);
	EQ(close(w.fd), 0);
	ends_close(e);
}

CASE("tcp.begin.from-v4-to-a-listener-of-both")
{
	int listener = a_socket(TCP6);
	struct sockaddr_in6 any = {.sin6_family = AF_INET6};
	struct name name = loopback(TCP4);

	set_int(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
	NEED(bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(listener, 1) == 0);
	name.in.sin_port = htons((uint16_t)port_of(listener));
	struct ends e = {.a = a_socket(TCP4)};
	NEED(connect(e.a, &name.any, name.length) == 0);
	e.b = accepted(listener);
	flow_both_ways(e);
	EQ(close(listener), 0);
	ends_close(e);
}

/* The client does not wait for its connection, and asks for nothing before the server has accepted: whoever answers
   then does so while the one thread that there is waits in the send. */
TCPS("begin.who-talks-to-itself-in-one-thread-may-send-before-it-receives")
{
	int listener = a_listener(kind, 4);
	struct name name = name_of(listener);
	struct ends e = {.a = a_socket(kind)};
	struct flow out = {1, 0}, in = out;

	set_nonblocking(e.a, true);
	int result = connect(e.a, &name.any, name.length);
	CHECK(result == 0 || errno == EINPROGRESS);
	e.b = accepted(listener);
	set_nonblocking(e.a, false);
	NEED(flow_send(&out, e.a, 100000));
	NEED(shutdown(e.a, SHUT_WR) == 0);
	CHECK(flow_recv_to_the_end(&in, e.b));
	EQ(in.at, out.at);
	EQ(close(listener), 0);
	ends_close(e);
}

/* --- connecting without waiting */

TCPS("begin.without-waiting-told-by-epoll")
{
	int listener = a_listener(kind, 4), fd = a_socket(kind), set = a_poll();
	struct name name = name_of(listener);
	struct epoll_event got = {};

	set_nonblocking(fd, true);
	int result = connect(fd, &name.any, name.length);
	CHECK(result == 0 || errno == EINPROGRESS);
	watch(set, fd, EPOLLOUT | EPOLLIN | EPOLLET);
	double end = deadline();
	while (!(got.events & EPOLLOUT) && now() < end)
		events_of(set, &got, patience);
	EQ(got.events, EPOLLOUT);
	EQ(get_int(fd, SOL_SOCKET, SO_ERROR), 0);
	struct ends e = {fd, accepted(listener)};
	EQ(events_of(set, NULL, QUIET), 0);
	talks(e.a, e.b);
	talks(e.b, e.a);
	EQ(close(set), 0);
	EQ(close(listener), 0);
	ends_close(e);
}

/* A listener whose queue is full, and a socket that therefore is between. */
struct between {
	int listener, first, fd;
	struct name name;
};

static struct between start_between(long kind)
{
	struct between b = {.listener = a_listener(kind, 0), .fd = a_socket(kind)};

	b.name = name_of(b.listener);
	b.first = connected_to(kind, b.listener);
	return b;
}

static void end_between(struct between b)
{
	EQ(close(b.fd), 0);
	EQ(close(b.first), 0);
	EQ(close(b.listener), 0);
}

TCPS("begin.between-nothing-moves-and-nothing-is-ready")
{
	struct between b = start_between(kind);
	struct name peer = {.length = sizeof(peer.storage)};
	char got[4];

	set_nonblocking(b.fd, true);
	if (connect(b.fd, &b.name.any, b.name.length) == 0)
		SKIP("this kernel's queue has room for one more");
	EQ(errno, EINPROGRESS);
	FAILS(connect(b.fd, &b.name.any, b.name.length), EALREADY);
	EQ(wait_for(b.fd, POLLIN | POLLOUT, 0), 0);
	EQ(get_int(b.fd, SOL_SOCKET, SO_ERROR), 0);
	FAILS(recv(b.fd, got, 4, 0), EAGAIN);
	FAILS(send(b.fd, "x", 1, MSG_NOSIGNAL), EAGAIN);
	FAILS(getpeername(b.fd, &peer.any, &peer.length), ENOTCONN);
	end_between(b);
}

TCPS("begin.by-the-time-it-is-still-between")
{
	calm();
	struct between b = start_between(kind);
	struct timeval limit = {0, 30000};

	NEED(setsockopt(b.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0);
	int result = connect(b.fd, &b.name.any, b.name.length);
	if (result == 0)
		SKIP("this kernel's queue has room for one more");
	EQ(errno, EINPROGRESS);
	FAILS(connect(b.fd, &b.name.any, b.name.length), EALREADY);
	end_between(b);
}

struct connecting {
	struct between b;
	int result, error;
	pid_t tid;
};

static void *wait_connect(void *of)
{
	struct connecting *c = of;

	tell(&c->tid);
	errno = 0;
	c->result = connect(c->b.fd, &c->b.name.any, c->b.name.length);
	c->error = errno;
	return NULL;
}

TCPS("begin.interrupted-it-goes-on-by-itself")
{
	calm();
	struct connecting c = {.b = start_between(kind)};
	pthread_t thread;
	double end = deadline();
	int error;

	catch_signal(SIGUSR1, 0);
	NEED(pthread_create(&thread, NULL, wait_connect, &c) == 0);
	while ((error = pthread_tryjoin_np(thread, NULL)) == EBUSY && now() < end) {
		pthread_kill(thread, SIGUSR1);
		sleep_ms(5);
	}
	EQ(error, 0);
	if (c.result == 0)
		SKIP("this kernel's queue has room for one more");
	EQ(c.error, EINTR);
	/* connect(2): it is under way; when it is done poll tells. */
	int first = accepted(c.b.listener);
	EQ(wait_for(c.b.fd, POLLOUT, patience), POLLOUT);
	EQ(get_int(c.b.fd, SOL_SOCKET, SO_ERROR), 0);
	struct ends e = {c.b.fd, accepted(c.b.listener)};
	flow_both_ways(e);
	EQ(close(first), 0);
	EQ(close(e.b), 0);
	end_between(c.b);
}

TCPS("begin.taken-up-after-a-signal")
{
	calm();
	struct connecting c = {.b = start_between(kind)};
	pthread_t thread;

	catch_signal(SIGUSR1, SA_RESTART);
	NEED(pthread_create(&thread, NULL, wait_connect, &c) == 0);
	until_asleep(&c.tid);
	for (int i = 0; i < 3; i++) {
		pthread_kill(thread, SIGUSR1);
		sleep_ms(3);
	}
	int first = accepted(c.b.listener);
	NEED(join_soon(thread, NULL));
	EQ(c.result, 0);
	struct ends e = {c.b.fd, accepted(c.b.listener)};
	flow_both_ways(e);
	EQ(close(first), 0);
	EQ(close(e.b), 0);
	end_between(c.b);
}

/* --- connected anew */

TCPS("begin.a-socket-connected-anew-has-nothing-of-the-old")
{
	int listener = a_listener(kind, 4), fd = connected_to(kind, listener);
	struct name name = name_of(listener);
	struct sockaddr nothing = {.sa_family = AF_UNSPEC};
	struct flow out = {7, 0}, in = out;
	char got[4];

	for (int i = 0; i < 4; i++) {
		struct ends e = {fd, accepted(listener)};
		out.at = in.at = 0;
		/* Octets that nobody reads, both ways. */
		NEED(flow_send(&out, e.b, 500) && octets_come(e.a, 500) && flow_recv(&in, e.a, 123));
		NEED(flow_send(&out, e.a, 77));
		EQ(connect(fd, &nothing, sizeof(nothing)), 0);
		/* Told that it is over, and not what was left. */
		EQ(recv(fd, got, 4, MSG_DONTWAIT), -1);
		CHECK(errno == ECONNRESET || errno == ENOTCONN);
		FAILS(recv(fd, got, 4, MSG_DONTWAIT), ENOTCONN);
		FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
		EQ(close(e.b), 0);
		EQ(connect(fd, &name.any, name.length), 0);
		EQ(wait_for(fd, POLLIN, 0), 0);
	}
	struct ends e = {fd, accepted(listener)};
	EQ(wait_for(e.b, POLLIN, 0), 0);
	flow_both_ways(e);
	EQ(close(listener), 0);
	ends_close(e);
}

TCPS("begin.to-itself-a-flow")
{
	/* The socket is its own peer. */
	int fd = a_bound(kind);
	struct name name = name_of(fd);
	struct flow out = {8, 0}, in = out;
	unsigned seed = 8;

	EQ(connect(fd, &name.any, name.length), 0);
	EQ(wait_for(fd, POLLIN, 0), 0);
	while (out.at < 50000) {
		NEED(flow_send(&out, fd, 1 + any_below(&seed, 3000)));
		if (out.at - in.at > 6000)
			NEED(flow_recv(&in, fd, 1 + any_below(&seed, out.at - in.at)));
	}
	NEED(flow_recv(&in, fd, out.at - in.at));
	EQ(wait_for(fd, POLLIN, 0), 0);
	EQ(shutdown(fd, SHUT_WR), 0);
	CHECK(flow_recv_to_the_end(&in, fd));
	EQ(close(fd), 0);
}
