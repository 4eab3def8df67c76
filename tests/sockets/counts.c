/* What a stream tells of itself: how many octets wait to be read or acknowledged, from how many on it is readable, and
   what its options and names say while octets flow. */
#include "flow.h"
#include "ready.h"
#include "waiter.h"

#include <linux/sockios.h>

static int asked(int fd, unsigned long request)
{
	int there = -1;

	NEED(ioctl(fd, request, &there) == 0);
	return there;
}

/* --- to be read */

TCPS("counts.to-be-read-after-each-write-and-read")
{
	struct ends e = ends_of(kind);
	struct flow out = {1, 0}, in = out;
	unsigned seed = 1;

	for (int i = 0; i < 60; i++) {
		NEED(flow_send(&out, e.a, 1 + any_below(&seed, 2500)));
		int want = (int)(out.at - in.at);
		NEED(octets_come(e.b, want));
		/* Neither more nor less, however it is asked. */
		EQ(asked(e.b, FIONREAD), want);
		EQ(asked(e.b, SIOCINQ), want);
		EQ(asked(e.a, FIONREAD), 0);
		if (want > 12000)
			NEED(flow_recv(&in, e.b, (size_t)want));
		else
			NEED(flow_recv(&in, e.b, 1 + any_below(&seed, (size_t)want)));
		EQ(asked(e.b, FIONREAD), (int)(out.at - in.at));
	}
	NEED(flow_recv(&in, e.b, out.at - in.at));
	EQ(asked(e.b, FIONREAD), 0);
	ends_close(e);
}

TCPS("counts.to-be-read-after-a-look-and-a-discard")
{
	struct ends e = ends_of(kind);
	char got[600];

	for (int i = 0; i < 5; i++)
		EQ(send(e.a, got, 111, 0), 111);
	NEED(octets_come(e.b, 555));
	EQ(recv(e.b, got, 600, MSG_PEEK), 555);
	EQ(asked(e.b, FIONREAD), 555);
	EQ(recv(e.b, NULL, 200, MSG_TRUNC), 200);
	EQ(asked(e.b, FIONREAD), 355);
	ends_close(e);
}

TCPS("counts.to-be-read-before-the-end")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "abcdefg", 7, 0), 7);
	EQ(shutdown(e.a, SHUT_WR), 0);
	NEED(wait_for(e.b, POLLRDHUP, patience));
	/* The end is no octet. */
	EQ(asked(e.b, FIONREAD), 7);
	EQ(recv(e.b, got, 6, 0), 6);
	EQ(asked(e.b, FIONREAD), 1);
	EQ(recv(e.b, got, 6, 0), 1);
	EQ(asked(e.b, FIONREAD), 0);
	ends_close(e);
}

static void child_counts_and_takes(void *of)
{
	struct ends *e = of;
	char got[64];

	EQ(asked(e->b, FIONREAD), 150);
	EQ(recv(e->b, got, 33, 0), 33);
	EQ(asked(e->b, FIONREAD), 117);
}

TCPS("counts.to-be-read-in-copies-and-processes")
{
	struct ends e = ends_of(kind);
	char got[200] = {};
	int copy = dup(e.b);

	EQ(send(e.a, got, 100, 0), 100);
	EQ(send(e.a, got, 100, 0), 100);
	NEED(octets_come(e.b, 200));
	EQ(recv(e.b, got, 50, 0), 50);
	EQ(asked(copy, FIONREAD), 150);
	CHECK(in_child(child_counts_and_takes, &e));
	EQ(asked(e.b, FIONREAD), 117);
	EQ(asked(copy, FIONREAD), 117);
	EQ(recv(copy, got, 200, 0), 117);
	EQ(close(copy), 0);
	ends_close(e);
}

static void *send_much(void *of)
{
	struct flow out = {10, 0};
	unsigned seed = 10;

	while (out.at < 1 << 20)
		NEED(flow_send(&out, *(int *)of, 1 + any_below(&seed, 50000)));
	NEED(shutdown(*(int *)of, SHUT_WR) == 0);
	return NULL;
}

/* In the middle of a flow: what is said to be there is to be had at once, to the octet. */
TCPS("counts.to-be-read-is-to-be-had")
{
	struct ends e = tight_ends(kind);
	struct flow in = {10, 0};
	static char octets[1 << 20];
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, send_much, &e.a) == 0);
	for (;;) {
		NEED(is_readable(e.b));
		int there = asked(e.b, FIONREAD);
		ssize_t got = recv(e.b, octets, there ? (size_t)there : 1, MSG_DONTWAIT);
		if (got == 0)
			break;
		NEED(got == (there ? there : 1) && flow_is(&in, octets, (size_t)got));
	}
	NEED(join_soon(thread, NULL));
	CHECK(in.at >= 1 << 20);
	ends_close(e);
}

TCPS("counts.of-a-listener-are-refused")
{
	int listener = a_listener(kind, 1), there = 0;

	FAILS(ioctl(listener, FIONREAD, &there), EINVAL);
	FAILS(ioctl(listener, SIOCOUTQ, &there), EINVAL);
	EQ(close(listener), 0);
}

#ifndef TCP_INQ
#define TCP_INQ 36
#endif

TCPS("counts.to-be-read-told-with-what-was-read")
{
	struct ends e = ends_of(kind);
	struct flow out = {9, 0}, in = out;
	int on = 1;

	if (setsockopt(e.b, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)) != 0)
		SKIP("this kernel has no TCP_INQ");
	for (int i = 0; i < 4; i++)
		NEED(flow_send(&out, e.a, 250));
	NEED(octets_come(e.b, 1000));
	for (int left = 1000; left > 0;) {
		char got[300], control[64];
		struct iovec v = {got, sizeof(got)};
		struct msghdr msg = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
				     .msg_controllen = sizeof(control)};
		ssize_t some = recvmsg(e.b, &msg, 0);
		NEED(some > 0 && flow_is(&in, got, (size_t)some));
		left -= (int)some;
		struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
		NEED(head && head->cmsg_level == IPPROTO_TCP && head->cmsg_type == TCP_INQ);
		int told;
		memcpy(&told, CMSG_DATA(head), sizeof(told));
		EQ(told, left);
	}
	ends_close(e);
}

/* --- to be acknowledged */

TCPS("counts.to-be-acknowledged-is-nothing-soon")
{
	struct ends e = ends_of(kind);
	struct flow out = {2, 0}, in = out;
	unsigned seed = 2;

	EQ(asked(e.a, SIOCOUTQ), 0);
	for (int i = 0; i < 10; i++) {
		NEED(flow_send(&out, e.a, 1 + any_below(&seed, 9000)));
		NEED(flow_recv(&in, e.b, out.at - in.at));
		double end = deadline();
		while (asked(e.a, SIOCOUTQ) != 0 && now() < end)
			sleep_ms(1);
		EQ(asked(e.a, SIOCOUTQ), 0);
		EQ(asked(e.a, SIOCOUTQNSD), 0);
	}
	EQ(asked(e.b, SIOCOUTQ), 0);
	ends_close(e);
}

TCPS("counts.to-be-acknowledged-while-nobody-reads")
{
	struct ends e = tight_ends(kind);
	struct flow out = {3, 0}, in = out;
	int left = -1;

	flow_fill(&out, e.a);
	/* Until the acknowledgements of what fits the other side have come. */
	for (int same = 0, before = -1; same < 5; sleep_ms(10)) {
		left = asked(e.a, SIOCOUTQ);
		same = left == before ? same + 1 : 0;
		before = left;
	}
	/* What was sent either waits there or is not acknowledged, or both. */
	int there = asked(e.b, FIONREAD), sent = (int)out.at;
	CHECKF(left > 0 && left <= sent + sent / 10, "%d of %d are not acknowledged", left, sent);
	CHECKF(left + there >= sent - sent / 10, "%d are not acknowledged and %d there, of %d", left, there, sent);
	CHECK(asked(e.a, SIOCOUTQNSD) <= left);
	NEED(flow_recv(&in, e.b, out.at));
	double end = deadline();
	while (asked(e.a, SIOCOUTQ) != 0 && now() < end)
		sleep_ms(1);
	EQ(asked(e.a, SIOCOUTQ), 0);
	ends_close(e);
}

/* --- the low water mark */

enum { MARK = 1000 };

TCPS("counts.low-water-mark-in-poll-select-and-epoll")
{
	struct ends e = ends_of(kind);
	struct flow out = {4, 0}, in = out;
	int set = a_poll();

	EQ(get_int(e.b, SOL_SOCKET, SO_RCVLOWAT), 1);
	set_int(e.b, SOL_SOCKET, SO_RCVLOWAT, MARK);
	EQ(get_int(e.b, SOL_SOCKET, SO_RCVLOWAT), MARK);
	watch(set, e.b, EPOLLIN);
	/* Up to the last octet below it. */
	for (int i = 0; i < 9; i++)
		NEED(flow_send(&out, e.a, i < 8 ? 100 : 199));
	NEED(octets_come(e.b, MARK - 1));
	EQ(wait_for(e.b, POLLIN, QUIET), 0);
	EQ(select_one(e.b, false, 0), 0);
	EQ(events_of(set, NULL, 0), 0);
	NEED(flow_send(&out, e.a, 1));
	EQ(events_of(set, NULL, patience), 1);
	EQ(wait_for(e.b, POLLIN, patience), POLLIN);
	EQ(select_one(e.b, false, patience), 1);
	/* Below it again. */
	EQ(recv(e.b, (char[1]){0}, 1, 0), 1);
	in.at++;
	EQ(wait_for(e.b, POLLIN, 0), 0);
	EQ(events_of(set, NULL, 0), 0);
	set_int(e.b, SOL_SOCKET, SO_RCVLOWAT, 1);
	EQ(wait_for(e.b, POLLIN, patience), POLLIN);
	NEED(flow_recv(&in, e.b, MARK - 1));
	EQ(close(set), 0);
	ends_close(e);
}

TCPS("counts.low-water-mark-in-a-blocking-call")
{
	/* A signal lets it return with less. */
	calm();
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.b};

	set_int(e.b, SOL_SOCKET, SO_RCVLOWAT, 6);
	pthread_t thread = waiting(&w, wait_recv);
	EQ(send(e.a, "abc", 3, 0), 3);
	sleep_ms(QUIET);
	EQ(pthread_tryjoin_np(thread, NULL), EBUSY);
	EQ(send(e.a, "def", 3, 0), 3);
	NEED(join_soon(thread, NULL));
	EQ(w.result, 6);
	SAME(w.octets, "abcdef", 6);
	ends_close(e);
}

TCPS("counts.low-water-mark-and-less-room-or-no-waiting")
{
	struct ends e = ends_of(kind);
	char got[8];

	set_int(e.b, SOL_SOCKET, SO_RCVLOWAT, 6);
	EQ(send(e.a, "abcd", 4, 0), 4);
	NEED(octets_come(e.b, 4));
	/* As much as there is room for is enough; and what is there, where nobody waits. */
	EQ(recv(e.b, got, 2, 0), 2);
	EQ(recv(e.b, got, 8, MSG_DONTWAIT), 2);
	FAILS(recv(e.b, got, 8, MSG_DONTWAIT), EAGAIN);
	ends_close(e);
}

TCPS("counts.low-water-mark-gives-way-to-the-end")
{
	struct ends e = ends_of(kind);
	char got[8];

	set_int(e.b, SOL_SOCKET, SO_RCVLOWAT, 6);
	EQ(send(e.a, "abc", 3, 0), 3);
	NEED(octets_come(e.b, 3));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	EQ(shutdown(e.a, SHUT_WR), 0);
	EQ(wait_for(e.b, POLLIN, patience), POLLIN);
	EQ(recv(e.b, got, 8, 0), 3);
	EQ(recv(e.b, got, 8, 0), 0);
	ends_close(e);
}

TCPS("counts.low-water-mark-of-nothing-is-one")
{
	struct ends e = ends_of(kind);
	int value = -1;

	set_int(e.b, SOL_SOCKET, SO_RCVLOWAT, 0);
	EQ(get_int(e.b, SOL_SOCKET, SO_RCVLOWAT), 1);
	/* A negative one is as large as the kernel lets it be. */
	EQ(setsockopt(e.b, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value)), 0);
	CHECK(get_int(e.b, SOL_SOCKET, SO_RCVLOWAT) > MARK);
	FAILS(setsockopt(e.b, SOL_SOCKET, SO_SNDLOWAT, &value, sizeof(value)), ENOPROTOOPT);
	ends_close(e);
}

/* --- options and names of a connection in use */

TCPS("counts.buffers-are-as-they-were-set-and-hold-the-flow")
{
	struct ends e = ends_of(kind);
	struct flow out = {5, 0}, in = out;

	set_int(e.a, SOL_SOCKET, SO_SNDBUF, 30000);
	set_int(e.b, SOL_SOCKET, SO_RCVBUF, 30000);
	flow_fill(&out, e.a);
	EQ(get_int(e.a, SOL_SOCKET, SO_SNDBUF), 60000);
	EQ(get_int(e.b, SOL_SOCKET, SO_RCVBUF), 60000);
	NEED(flow_recv(&in, e.b, out.at));
	ends_close(e);
}

TCPS("counts.the-state-in-tcp_info")
{
	struct ends e = ends_of(kind);
	struct tcp_info info = {};
	socklen_t length = sizeof(info);
	int listener = a_listener(kind, 1);

	EQ(getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
	EQ(info.tcpi_state, TCP_LISTEN);
	talks(e.a, e.b);
	EQ(shutdown(e.a, SHUT_WR), 0);
	NEED(wait_for(e.b, POLLRDHUP, patience));
	length = sizeof(info);
	EQ(getsockopt(e.b, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
	EQ(info.tcpi_state, TCP_CLOSE_WAIT);
	/* A caller of older kernels asks for less. */
	length = 8;
	EQ(getsockopt(e.b, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
	EQ(length, 8);
	EQ(close(listener), 0);
	ends_close(e);
}

TCPS("counts.what-it-is-stays-so")
{
	struct ends e = ends_of(kind);
	struct flow out = {6, 0}, in = out;
	struct name a = name_of(e.a), b = name_of(e.b);

	for (int i = 0; i < 3; i++) {
		NEED(flow_send(&out, e.a, 5000) && flow_recv(&in, e.b, 4000 + 500 * (size_t)i));
		int fds[] = {e.a, e.b};
		for (int j = 0; j < 2; j++) {
			EQ(get_int(fds[j], SOL_SOCKET, SO_TYPE), SOCK_STREAM);
			EQ(get_int(fds[j], SOL_SOCKET, SO_DOMAIN), kind_family((enum kind)kind));
			EQ(get_int(fds[j], SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
			EQ(get_int(fds[j], SOL_SOCKET, SO_ACCEPTCONN), 0);
			EQ(get_int(fds[j], SOL_SOCKET, SO_ERROR), 0);
		}
		struct name peer = peer_of(e.a);
		EQ(peer.length, b.length);
		SAME(&peer.storage, &b.storage, b.length);
		peer = peer_of(e.b);
		SAME(&peer.storage, &a.storage, a.length);
	}
	ends_close(e);
}

TCPS("counts.the-peers-name-until-the-connection-is-gone")
{
	struct ends e = ends_of(kind);
	struct name name = {.length = sizeof(name.storage)};
	struct linger at_once = {1, 0};

	EQ(shutdown(e.a, SHUT_WR), 0);
	NEED(wait_for(e.b, POLLRDHUP, patience));
	peer_of(e.b);
	peer_of(e.a);
	NEED(setsockopt(e.a, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0 && close(e.a) == 0);
	NEED(wait_for(e.b, 0, patience) & POLLERR);
	FAILS(getpeername(e.b, &name.any, &name.length), ENOTCONN);
	EQ(close(e.b), 0);
}

TCPS("counts.of-a-connection-without-delay")
{
	struct ends e = ends_of(kind);
	struct flow out = {7, 0}, in = out;

	EQ(get_int(e.a, IPPROTO_TCP, TCP_NODELAY), 0);
	set_int(e.a, IPPROTO_TCP, TCP_NODELAY, 1);
	/* Each small one comes though those before are not read. */
	for (int i = 1; i <= 50; i++) {
		NEED(flow_send(&out, e.a, 3));
		NEED(octets_come(e.b, 3 * i));
	}
	EQ(get_int(e.a, IPPROTO_TCP, TCP_NODELAY), 1);
	NEED(flow_recv(&in, e.b, 150));
	ends_close(e);
}

TCPS("counts.a-largest-segment-that-was-asked-for")
{
	int listener = a_listener(kind, 1);
	struct name name = name_of(listener);
	struct ends e = {.a = a_socket(kind)};
	struct flow out = {8, 0}, in = out;

	set_int(e.a, IPPROTO_TCP, TCP_MAXSEG, 600);
	NEED(connect(e.a, &name.any, name.length) == 0);
	NEED((e.b = accept(listener, NULL, NULL)) >= 0);
	CHECK(get_int(e.a, IPPROTO_TCP, TCP_MAXSEG) <= 600);
	NEED(flow_send(&out, e.a, 20001) && flow_recv(&in, e.b, 20001));
	EQ(close(listener), 0);
	ends_close(e);
}
