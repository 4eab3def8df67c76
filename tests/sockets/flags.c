/* The flags of receiving and sending on a stream: peek, wait for all, discard; octets that are held back. */
#include "flow.h"
#include "waiter.h"

/* --- MSG_PEEK */

TCPS("peek.again-and-again-with-more-room")
{
	struct ends e = ends_of(kind);
	struct flow out = {1, 0}, in = out;
	char got[4000];
	int there = 0;

	/* Seven messages: a peek sees across where one ends. */
	for (size_t i = 0; i < 7; i++)
		NEED(flow_send(&out, e.a, 100 + 150 * i));
	NEED(octets_come(e.b, (int)out.at));
	for (size_t room = 1; room < sizeof(got); room = room * 2 + 3) {
		struct flow first = {1, 0};
		ssize_t want = (ssize_t)(room < out.at ? room : out.at);
		EQ(recv(e.b, got, room, MSG_PEEK), want);
		CHECK(flow_is(&first, got, (size_t)want));
		EQ(ioctl(e.b, FIONREAD, &there), 0);
		EQ(there, out.at);
	}
	CHECK(flow_recv(&in, e.b, out.at));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	ends_close(e);
}

TCPS("peek.between-takes-of-odd-sizes")
{
	struct ends e = ends_of(kind);
	struct flow out = {2, 0}, in = out;
	char got[3000];
	unsigned seed = 7;

	for (int i = 0; i < 200; i++) {
		NEED(flow_send(&out, e.a, 1 + any_below(&seed, 3000)));
		while (in.at < out.at && (i == 199 || out.at - in.at > 8000)) {
			struct flow ahead = in;
			ssize_t seen = recv(e.b, got, 1 + any_below(&seed, sizeof(got) - 1), MSG_PEEK);
			NEED(seen > 0 && flow_is(&ahead, got, (size_t)seen));
			/* As many as were seen are to be had at once. */
			size_t take = 1 + any_below(&seed, (size_t)seen);
			EQ(recv(e.b, got, take, MSG_DONTWAIT), (ssize_t)take);
			NEED(flow_is(&in, got, take));
		}
	}
	EQ(in.at, out.at);
	ends_close(e);
}

TCPS("peek.over-vectors")
{
	struct ends e = ends_of(kind);
	struct flow out = {3, 0}, in = out, first = out;
	char got[500];
	struct iovec v[4] = {{got, 7}, {NULL, 0}, {got + 7, 300}, {got + 307, 193}};
	struct msghdr msg = {.msg_iov = v, .msg_iovlen = 4};

	NEED(flow_send(&out, e.a, 200) && flow_send(&out, e.a, 250));
	NEED(octets_come(e.b, 450));
	for (int i = 0; i < 3; i++) {
		first.at = 0;
		EQ(recvmsg(e.b, &msg, MSG_PEEK), 450);
		CHECK(flow_is(&first, got, 450));
	}
	CHECK(flow_recv(&in, e.b, 450));
	ends_close(e);
}

TCPS("peek.waits-for-the-first-octet")
{
	calm();
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.b};
	pthread_t thread = waiting(&w, wait_peek);

	EQ(send(e.a, "peek", 4, 0), 4);
	NEED(join_soon(thread, NULL));
	EQ(w.result, 4);
	SAME(w.octets, "peek", 4);
	EQ(recv(e.b, w.octets, 16, MSG_DONTWAIT), 4);
	ends_close(e);
}

TCPS("peek.of-more-than-an-fpdu-holds")
{
	enum { OCTETS = 100000 };
	static char sent[OCTETS], got[OCTETS];
	struct ends e = ends_of(kind);

	fill(sent, OCTETS, 5);
	set_int(e.b, SOL_SOCKET, SO_RCVBUF, 1 << 20);
	NEED(send_all(e.a, sent, OCTETS));
	EQ(recv(e.b, got, OCTETS, MSG_PEEK | MSG_WAITALL), OCTETS);
	CHECK(holds(got, OCTETS, 5));
	EQ(recv(e.b, got, OCTETS, MSG_PEEK), OCTETS);
	EQ(recv(e.b, got, OCTETS, MSG_WAITALL), OCTETS);
	ends_close(e);
}

TCPS("peek.of-the-end")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "end", 3, 0), 3);
	EQ(shutdown(e.a, SHUT_WR), 0);
	NEED(wait_for(e.b, POLLRDHUP, patience));
	EQ(recv(e.b, got, 8, MSG_PEEK), 3);
	EQ(recv(e.b, got, 8, MSG_PEEK | MSG_WAITALL), 3);
	EQ(recv(e.b, got, 8, 0), 3);
	EQ(recv(e.b, got, 8, MSG_PEEK), 0);
	EQ(recv(e.b, got, 8, 0), 0);
	ends_close(e);
}

TCPS("peek.at-an-offset-that-moves")
{
	struct ends e = ends_of(kind);
	int zero = 0;
	char got[8];

	if (setsockopt(e.b, SOL_SOCKET, SO_PEEK_OFF, &zero, sizeof(zero)) != 0)
		SKIP("this kernel has no SO_PEEK_OFF of TCP");
	EQ(send(e.a, "abcdefgh", 8, 0), 8);
	NEED(octets_come(e.b, 8));
	EQ(recv(e.b, got, 3, MSG_PEEK), 3);
	SAME(got, "abc", 3);
	EQ(recv(e.b, got, 3, MSG_PEEK), 3);
	SAME(got, "def", 3);
	/* What is taken brings it back. */
	EQ(recv(e.b, got, 4, 0), 4);
	EQ(get_int(e.b, SOL_SOCKET, SO_PEEK_OFF), 2);
	EQ(recv(e.b, got, 8, MSG_PEEK), 2);
	SAME(got, "gh", 2);
	ends_close(e);
}

/* --- MSG_WAITALL */

struct feeder {
	struct flow flow;
	int fd;
	size_t length;
};

static void *feed(void *of)
{
	struct feeder *f = of;
	unsigned seed = 11;

	for (size_t done = 0; done < f->length;) {
		size_t some = 1 + any_below(&seed, f->length - done);
		NEED(flow_send(&f->flow, f->fd, some));
		done += some;
		if (any_below(&seed, 8) == 0)
			sleep_ms(1);
	}
	return NULL;
}

static void wait_for_all(long kind, size_t length, int flags)
{
	/* A signal lets it return with less. */
	calm();
	struct ends e = ends_of(kind);
	struct feeder f = {{4, 0}, e.a, length};
	struct flow in = f.flow;
	char *got = malloc(length);
	pthread_t thread;

	NEED(got && pthread_create(&thread, NULL, feed, &f) == 0);
	EQ(recv(e.b, got, length, MSG_WAITALL | flags), (ssize_t)length);
	if (flags & MSG_TRUNC)
		in.at += length;
	else
		CHECK(flow_is(&in, got, length));
	NEED(join_soon(thread, NULL));
	/* The next one begins right behind. */
	NEED(flow_send(&f.flow, e.a, 10) && flow_recv(&in, e.b, 10));
	free(got);
	ends_close(e);
}

TCPS("waitall.over-messages-of-any-size")
{
	wait_for_all(kind, 30001, 0);
}

TCPS("waitall.of-more-than-the-buffers-hold")
{
	wait_for_all(kind, 3000001, 0);
}

TCPS("waitall.throws-all-away")
{
	wait_for_all(kind, 300001, MSG_TRUNC);
}

TCPS("waitall.with-dontwait-takes-what-is-there")
{
	struct ends e = ends_of(kind);
	char got[8];

	FAILS(recv(e.b, got, 8, MSG_WAITALL | MSG_DONTWAIT), EAGAIN);
	EQ(send(e.a, "abc", 3, 0), 3);
	NEED(octets_come(e.b, 3));
	EQ(recv(e.b, got, 8, MSG_WAITALL | MSG_DONTWAIT), 3);
	ends_close(e);
}

/* Waits for 16 octets, of which three have come. */
static pthread_t has_three_of_16(struct ends e, struct waiter *w)
{
	*w = (struct waiter){.fd = e.b};
	EQ(send(e.a, "abc", 3, 0), 3);
	NEED(octets_come(e.b, 3));
	pthread_t thread = waiting(w, wait_recv_all);
	return thread;
}

static void interrupted_with_some(long kind, int flags)
{
	calm();
	struct ends e = ends_of(kind);
	struct waiter w;
	char got[8];

	catch_signal(SIGUSR1, flags);
	pthread_t thread = has_three_of_16(e, &w);
	EQ(pthread_kill(thread, SIGUSR1), 0);
	NEED(join_soon(thread, NULL));
	EQ(w.result, 3);
	SAME(w.octets, "abc", 3);
	EQ(send(e.a, "de", 2, 0), 2);
	EQ(recv(e.b, got, 8, 0), 2);
	SAME(got, "de", 2);
	ends_close(e);
}

TCPS("waitall.interrupted-tells-what-came")
{
	interrupted_with_some(kind, 0);
}

TCPS("waitall.interrupted-tells-what-came-with-restart-too")
{
	interrupted_with_some(kind, SA_RESTART);
}

TCPS("waitall.ends-with-a-reset-that-is-told-next")
{
	calm();
	struct ends e = ends_of(kind);
	struct waiter w;
	struct linger at_once = {1, 0};
	pthread_t thread = has_three_of_16(e, &w);

	NEED(setsockopt(e.a, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0 && close(e.a) == 0);
	NEED(join_soon(thread, NULL));
	EQ(w.result, 3);
	FAILS(recv(e.b, w.octets, 8, 0), ECONNRESET);
	EQ(close(e.b), 0);
}

TCPS("waitall.ends-with-the-time")
{
	calm();
	struct ends e = ends_of(kind);
	struct timeval limit = {0, 30000};
	char got[8];

	NEED(setsockopt(e.b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
	EQ(send(e.a, "abc", 3, 0), 3);
	NEED(octets_come(e.b, 3));
	double start = now();
	EQ(recv(e.b, got, 8, MSG_WAITALL), 3);
	CHECK(now() - start >= 0.025);
	FAILS(recv(e.b, got, 8, MSG_WAITALL), EAGAIN);
	ends_close(e);
}

/* --- MSG_TRUNC: octets thrown away */

TCPS("trunc.discards-across-messages")
{
	struct ends e = ends_of(kind);
	struct flow out = {5, 0}, in = out;

	for (size_t i = 0; i < 9; i++)
		NEED(flow_send(&out, e.a, 333));
	NEED(octets_come(e.b, 9 * 333));
	/* With nowhere to put them. */
	EQ(recv(e.b, NULL, 1000, MSG_TRUNC), 1000);
	in.at = 1000;
	NEED(flow_recv(&in, e.b, 100));
	EQ(recv(e.b, NULL, 100000, MSG_TRUNC), (ssize_t)(out.at - in.at));
	FAILS(recv(e.b, NULL, 100, MSG_TRUNC | MSG_DONTWAIT), EAGAIN);
	NEED(shutdown(e.a, SHUT_WR) == 0 && is_readable(e.b));
	EQ(recv(e.b, NULL, 100, MSG_TRUNC), 0);
	ends_close(e);
}

TCPS("trunc.and-peek-only-count")
{
	struct ends e = ends_of(kind);
	struct flow out = {6, 0}, in = out;

	NEED(flow_send(&out, e.a, 300) && octets_come(e.b, 300));
	EQ(recv(e.b, NULL, 1000, MSG_TRUNC | MSG_PEEK), 300);
	EQ(recv(e.b, NULL, 10, MSG_TRUNC | MSG_PEEK), 10);
	CHECK(flow_recv(&in, e.b, 300));
	ends_close(e);
}

/* --- in the middle of what has been sent */

/* A process sends more than there is room for and stands still: everything that came of it is taken. */
static pid_t sends_part_and_stops(struct ends e)
{
	static char octets[1 << 20];
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		close(e.b);
		NEED(send(e.a, octets, sizeof(octets), MSG_DONTWAIT) > 0);
		raise(SIGSTOP);
		_exit(1);
	}
	EQ(close(e.a), 0);
	EQ(TEMP_FAILURE_RETRY(waitpid(child, NULL, WUNTRACED)), child);
	while (wait_for(e.b, POLLIN, QUIET) != 0)
		recv(e.b, octets, sizeof(octets), MSG_DONTWAIT);
	return child;
}

static void nothing_more_has_come(long flags)
{
	struct ends e = tight_ends(TCP4);
	char got[100];
	int status;
	pid_t child = sends_part_and_stops(e);

	FAILS(recv(e.b, got, sizeof(got), (int)flags | MSG_DONTWAIT), EAGAIN);
	/* Its end is one, however much was missing. */
	EQ(kill(child, SIGKILL), 0);
	EQ(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)), child);
	ssize_t count;
	do {
		count = recv(e.b, got, sizeof(got), MSG_TRUNC);
	} while (count > 0);
	CHECK(count == 0 || errno == ECONNRESET);
	EQ(close(e.b), 0);
}

CASES
{
	static const struct {
		const char *how;
		long flags;
	} ways[] = {{"received", 0}, {"peeked-at", MSG_PEEK}, {"counted", MSG_PEEK | MSG_TRUNC}, {"discarded", MSG_TRUNC}};

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		case_add(__FILE__, __LINE__, nothing_more_has_come, ways[i].flags, "amid.a-message-%s", ways[i].how);
}

/* --- octets that are held back: for a fifth of a second at most (tcp(7)) */

enum held { BY_MORE, BY_CORK };

static void hold_back(struct ends e, long how)
{
	if (how == BY_CORK)
		set_int(e.a, IPPROTO_TCP, TCP_CORK, 1);
	EQ(send(e.a, "held", 4, how == BY_MORE ? MSG_MORE : 0), 4);
}

static void comes(struct ends e)
{
	char got[16];

	/* The case's patience is far longer than the kernel's. */
	NEED(octets_come(e.b, 4));
	EQ(recv(e.b, got, 16, 0), 4);
	SAME(got, "held", 4);
}

static void goes_by_itself(long both)
{
	struct ends e = ends_of(both % 2 ? TCP6 : TCP4);

	hold_back(e, both / 2);
	comes(e);
	EQ(wait_for(e.b, POLLIN, 0), 0);
	ends_close(e);
}

static void goes_before_the_end(long both)
{
	struct ends e = ends_of(both % 2 ? TCP6 : TCP4);
	char got[4];

	hold_back(e, both / 2);
	EQ(shutdown(e.a, SHUT_WR), 0);
	comes(e);
	EQ(recv(e.b, got, 4, 0), 0);
	ends_close(e);
}

static void goes_before_the_close(long both)
{
	struct ends e = ends_of(both % 2 ? TCP6 : TCP4);
	char got[4];

	hold_back(e, both / 2);
	EQ(close(e.a), 0);
	comes(e);
	EQ(recv(e.b, got, 4, 0), 0);
	EQ(close(e.b), 0);
}

CASES
{
	static const char *const names[] = {"msg_more", "cork"};

	for (long i = 0; i < 4; i++) {
		ADD(goes_by_itself, i, "tcp%d.held.by-%s-goes-by-itself", i % 2 ? 6 : 4, names[i / 2]);
		ADD(goes_before_the_end, i, "tcp%d.held.by-%s-goes-before-the-end", i % 2 ? 6 : 4, names[i / 2]);
		ADD(goes_before_the_close, i, "tcp%d.held.by-%s-goes-before-the-close", i % 2 ? 6 : 4, names[i / 2]);
	}
}

TCPS("held.many-with-msg_more-are-one-stream")
{
	struct ends e = ends_of(kind);
	struct flow out = {7, 0}, in = out;
	char octets[700];
	unsigned seed = 3;

	for (int i = 0; i < 60; i++) {
		size_t length = 1 + any_below(&seed, sizeof(octets) - 1);
		struct flow next = out;
		flow_next(&next, octets, length);
		ssize_t sent = send(e.a, octets, length, i % 7 ? MSG_MORE : 0);
		NEED(sent > 0);
		out.at += (uint64_t)sent;
	}
	NEED(flow_recv(&in, e.b, out.at));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	ends_close(e);
}

TCPS("flags.that-mean-nothing-to-a-stream-are-passed-over")
{
	struct ends e = ends_of(kind);
	char got[16];

	EQ(send(e.a, "a", 1, MSG_EOR), 1);
	EQ(send(e.a, "b", 1, MSG_CONFIRM), 1);
	EQ(send(e.a, "c", 1, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR), 1);
	NEED(octets_come(e.b, 3));
	EQ(recv(e.b, got, 16, MSG_NOSIGNAL | MSG_CMSG_CLOEXEC), 3);
	SAME(got, "abc", 3);
	ends_close(e);
}
