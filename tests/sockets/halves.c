/* The two ways of a connection end apart: what still flows, what calls say, what poll and epoll tell. */
#include "flow.h"
#include "ready.h"
#include "ways.h"

/* --- each call at an end */

static void read_at_the_end(long both)
{
	struct ends e = ends_of(both % 2 ? TCP6 : TCP4);
	enum way_in how = (enum way_in)(both / 2);
	char got[64];

	EQ(send(e.a, "last", 4, 0), 4);
	EQ(shutdown(e.a, SHUT_WR), 0);
	NEED(wait_for(e.b, POLLRDHUP, patience));
	/* By splice and recvmmsg the end may come along; it is there for the next all the same. */
	EQ(get(how, e.b, got, sizeof(got)), 4);
	SAME(got, "last", 4);
	for (int i = 0; i < 3; i++)
		EQ(get(how, e.b, got, sizeof(got)), 0);
	set_nonblocking(e.b, true);
	EQ(get(how, e.b, got, sizeof(got)), 0);
	/* The other way works on. */
	struct flow out = {1, 0}, in = out;
	NEED(flow_send(&out, e.b, 3000) && flow_recv(&in, e.a, 3000));
	ends_close(e);
}

static void write_behind_the_end(long both)
{
	struct ends e = ends_of(both % 2 ? TCP6 : TCP4);
	enum way_out how = (enum way_out)(both / 2);
	char got[8];

	catch_signal(SIGPIPE, SA_RESTART);
	EQ(shutdown(e.a, SHUT_WR), 0);
	for (int i = 1; i < 4; i++) {
		FAILS(put(how, e.a, "never", 5), EPIPE);
		/* splice and sendfile raise it or not, as the kernel's version has it. */
		if (how < BY_SENDFILE)
			EQ(caught, i);
	}
	EQ(recv(e.b, got, 8, 0), 0);
	EQ(send(e.b, "back", 4, 0), 4);
	NEED(recv_all(e.a, got, 4));
	ends_close(e);
}

static void kills_by_sigpipe(void *of)
{
	struct ends *e = of;

	signal(SIGPIPE, SIG_DFL);
	EQ(shutdown(e->a, SHUT_WR), 0);
	if (write(e->a, "x", 1) == 1)
		_exit(1);
}

CASES
{
	for (long i = 0; i < 2 * WAYS_IN; i++)
		ADD(read_at_the_end, i, "tcp%d.halves.%s-at-the-end", i % 2 ? 6 : 4, way_in_names[i / 2]);
	for (long i = 0; i < 2 * WAYS_OUT; i++)
		ADD(write_behind_the_end, i, "tcp%d.halves.%s-behind-the-end", i % 2 ? 6 : 4, way_out_names[i / 2]);
}

TCPS("halves.sigpipe-ends-a-program")
{
	struct ends e = ends_of(kind);
	pid_t child = start_child(kills_by_sigpipe, &e);
	int status = 0;

	EQ(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)), child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
	ends_close(e);
}

/* A server that greets and leaves, while its client has not said a word. */
static void greeted_and_left(enum kind kind, int how)
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.b, "bye", 3, 0), 3);
	EQ(shutdown(e.b, how), 0);
	NEED(recv_all(e.a, got, 3));
	SAME(got, "bye", 3);
	NEED(wait_for(e.a, POLLIN, patience));
	EQ(recv(e.a, got, sizeof(got), 0), 0);
	FAILS(send(e.b, "x", 1, MSG_NOSIGNAL), EPIPE);
	ends_close(e);
}

TCPS("halves.who-speaks-first-may-end-first")
{
	greeted_and_left(kind, SHUT_WR);
}

TCPS("halves.who-speaks-first-may-end-both-first")
{
	greeted_and_left(kind, SHUT_RDWR);
}

/* --- a server that never reads */

enum { REPORTS = 50, REPORT = 6000, PIECE = 100 };

static void *report(void *listener)
{
	for (int i = 0; i < REPORTS; i++) {
		struct flow out = {6, 0};
		int fd = accept(*(int *)listener, NULL, NULL);

		CHECK(fd >= 0 && shutdown(fd, SHUT_RD) == 0);
		while (out.at < REPORT && flow_send(&out, fd, PIECE)) {}
		CHECK(out.at == REPORT);
		EQ(close(fd), 0);
	}
	return NULL;
}

TCPS("halves.a-report-of-who-never-reads")
{
	int listener = a_listener(kind, REPORTS);
	struct name at = name_of(listener);
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, report, &listener) == 0);
	for (int i = 0; i < REPORTS; i++) {
		struct flow in = {6, 0};
		int fd = a_socket(kind);

		NEED(connect(fd, &at.any, at.length) == 0);
		CHECK(flow_recv_to_the_end(&in, fd));
		EQ(in.at, REPORT);
		EQ(close(fd), 0);
	}
	NEED(join_soon(thread, NULL));
	EQ(close(listener), 0);
}

/* --- what still flows */

struct answerer {
	int fd;
	size_t asked;
};

static void *answer(void *of)
{
	struct answerer *a = of;
	struct flow in = {2, 0}, out = {3, 0};

	CHECK(flow_recv_to_the_end(&in, a->fd));
	a->asked = in.at;
	CHECK(flow_send(&out, a->fd, 700001));
	EQ(close(a->fd), 0);
	return NULL;
}

TCPS("halves.a-question-its-end-and-a-long-answer")
{
	struct ends e = ends_of(kind);
	struct flow out = {2, 0}, in = {3, 0};
	struct answerer a = {e.b, 0};
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, answer, &a) == 0);
	NEED(flow_send(&out, e.a, 300001));
	EQ(shutdown(e.a, SHUT_WR), 0);
	CHECK(flow_recv_to_the_end(&in, e.a));
	NEED(join_soon(thread, NULL));
	EQ(a.asked, 300001);
	EQ(in.at, 700001);
	EQ(close(e.a), 0);
}

TCPS("halves.what-a-full-socket-took-comes-before-the-end")
{
	struct ends e = tight_ends(kind);
	struct flow out = {4, 0}, in = out, back = {5, 0}, back_in = back;

	flow_fill(&out, e.a);
	EQ(shutdown(e.a, SHUT_WR), 0);
	FAILS(send(e.a, "x", 1, MSG_NOSIGNAL), EPIPE);
	NEED(flow_send(&back, e.b, 100) && flow_recv(&back_in, e.a, 100));
	CHECK(flow_recv_to_the_end(&in, e.b));
	EQ(in.at, out.at);
	ends_close(e);
}

TCPS("halves.an-end-that-comes-to-a-closed-socket-costs-nothing")
{
	struct ends e = tight_ends(kind);
	struct flow out = {4, 0}, in = out;
	char got[4];

	EQ(send(e.a, "asks", 4, 0), 4);
	NEED(recv_all(e.b, got, 4));
	flow_fill(&out, e.b);
	EQ(close(e.b), 0);
	/* Octets would be answered with a reset, and what is still on its way would be lost. */
	EQ(shutdown(e.a, SHUT_WR), 0);
	sleep_ms(20);
	CHECK(flow_recv_to_the_end(&in, e.a));
	EQ(in.at, out.at);
	EQ(close(e.a), 0);
}

TCPS("halves.the-end-of-one-copy-is-the-end-of-all")
{
	struct ends e = ends_of(kind);
	int copy = dup(e.a);
	char got[4];

	EQ(shutdown(copy, SHUT_WR), 0);
	FAILS(send(e.a, "x", 1, MSG_NOSIGNAL), EPIPE);
	EQ(recv(e.b, got, 4, 0), 0);
	/* The closing of a copy ends nothing. */
	EQ(close(copy), 0);
	EQ(send(e.b, "on", 2, 0), 2);
	NEED(recv_all(e.a, got, 2));
	ends_close(e);
}

TCPS("halves.what-comes-after-the-end-of-reading-is-there")
{
	struct ends e = ends_of(kind);
	char got[8] = "";

	/* Linux tells the peer nothing, and takes what it sends. */
	EQ(shutdown(e.b, SHUT_RD), 0);
	EQ(recv(e.b, got, 8, 0), 0);
	EQ(send(e.a, "more", 4, 0), 4);
	NEED(octets_come(e.b, 4));
	EQ(recv(e.b, got, 8, 0), 4);
	SAME(got, "more", 4);
	EQ(recv(e.b, got, 8, 0), 0);
	ends_close(e);
}

TCPS("halves.what-came-before-the-end-of-reading-is-there")
{
	struct ends e = ends_of(kind);
	char got[8] = "";

	EQ(send(e.a, "before", 6, 0), 6);
	NEED(octets_come(e.b, 6));
	EQ(recv(e.b, got, 2, 0), 2);
	EQ(shutdown(e.b, SHUT_RD), 0);
	EQ(recv(e.b, got, 8, 0), 4);
	SAME(got, "fore", 4);
	EQ(recv(e.b, got, 8, 0), 0);
	ends_close(e);
}

TCPS("halves.both-ends-at-once")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "from a", 6, 0), 6);
	EQ(send(e.b, "from b", 6, 0), 6);
	EQ(shutdown(e.a, SHUT_WR), 0);
	EQ(shutdown(e.b, SHUT_WR), 0);
	NEED(recv_all(e.a, got, 6) && recv_all(e.b, got, 6));
	EQ(recv(e.a, got, 8, 0), 0);
	EQ(recv(e.b, got, 8, 0), 0);
	EQ(get_int(e.a, SOL_SOCKET, SO_ERROR), 0);
	EQ(get_int(e.b, SOL_SOCKET, SO_ERROR), 0);
	ends_close(e);
}

/* --- what poll and epoll tell */

enum { ASKED = POLLIN | POLLOUT | POLLPRI | POLLRDHUP };

/* By poll and by epoll the same, now or soon, and for good. */
static void tells(int fd, int events)
{
	struct epoll_event got = {};
	int set = a_poll(), told = -1;

	for (double end = deadline(); now() < end && told != events; sleep_ms(1))
		told = wait_for(fd, ASKED, 0);
	EQ(told, events);
	watch(set, fd, ASKED);
	EQ(events_of(set, &got, 0), events ? 1 : 0);
	EQ(got.events, events);
	EQ(select_one(fd, false, 0), !!(events & (POLLIN | POLLHUP)));
	EQ(select_one(fd, true, 0), !!(events & POLLOUT));
	EQ(close(set), 0);
}

TCPS("halves.events-of-the-peers-end")
{
	struct ends e = ends_of(kind);
	char got[8];

	tells(e.b, POLLOUT);
	EQ(send(e.a, "ab", 2, 0), 2);
	tells(e.b, POLLIN | POLLOUT);
	EQ(recv(e.b, got, 1, 0), 1);
	tells(e.b, POLLIN | POLLOUT);
	EQ(shutdown(e.a, SHUT_WR), 0);
	tells(e.b, POLLIN | POLLOUT | POLLRDHUP);
	EQ(recv(e.b, got, 8, 0), 1);
	/* The end is readable again and again. */
	tells(e.b, POLLIN | POLLOUT | POLLRDHUP);
	EQ(recv(e.b, got, 8, 0), 0);
	tells(e.b, POLLIN | POLLOUT | POLLRDHUP);
	tells(e.a, POLLOUT);
	EQ(shutdown(e.b, SHUT_WR), 0);
	tells(e.b, POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
	tells(e.a, POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
	ends_close(e);
}

TCPS("halves.events-of-ones-own-end")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(shutdown(e.a, SHUT_WR), 0);
	tells(e.a, POLLOUT);
	EQ(send(e.b, "ab", 2, 0), 2);
	tells(e.a, POLLIN | POLLOUT);
	EQ(recv(e.a, got, 8, 0), 2);
	tells(e.a, POLLOUT);
	EQ(close(e.b), 0);
	tells(e.a, POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
	EQ(close(e.a), 0);
}

TCPS("halves.events-of-the-end-of-reading")
{
	struct ends e = ends_of(kind);

	EQ(shutdown(e.a, SHUT_RD), 0);
	tells(e.a, POLLIN | POLLOUT | POLLRDHUP);
	tells(e.b, POLLOUT);
	EQ(shutdown(e.a, SHUT_WR), 0);
	tells(e.a, POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
	tells(e.b, POLLIN | POLLOUT | POLLRDHUP);
	ends_close(e);
}

TCPS("halves.the-end-is-an-edge")
{
	struct ends e = ends_of(kind);
	struct epoll_event got = {};
	char octets[8];
	int set = a_poll();

	watch(set, e.b, EPOLLIN | EPOLLRDHUP | EPOLLET);
	EQ(send(e.a, "ab", 2, 0), 2);
	EQ(events_of(set, &got, patience), 1);
	EQ(got.events, EPOLLIN);
	EQ(recv(e.b, octets, 8, 0), 2);
	EQ(events_of(set, NULL, QUIET), 0);
	EQ(shutdown(e.a, SHUT_WR), 0);
	EQ(events_of(set, &got, patience), 1);
	EQ(got.events, EPOLLIN | EPOLLRDHUP);
	EQ(recv(e.b, octets, 8, 0), 0);
	EQ(events_of(set, NULL, QUIET), 0);
	EQ(close(set), 0);
	ends_close(e);
}
