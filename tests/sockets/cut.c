/* Calls that end in the middle, by a time, a signal, cancellation or for want of room: what they had moved by then is
   told and is exactly what the other side gets. */
#include "flow.h"
#include "waiter.h"
#include "ways.h"

enum { SOME = 60000 };

/* A thread that sends, or receives, by one of the ways. */
struct mover {
	int fd;
	long way;
	size_t length;
	struct flow flow;
	ssize_t result;
	int error;
	pid_t tid;
};

static void *move_out(void *of)
{
	struct mover *m = of;
	struct flow next = m->flow;
	/* Nothing that a cancelled thread would have to give back. */
	static char octets[SOME * 5];

	flow_next(&next, octets, m->length);
	tell(&m->tid);
	errno = 0;
	m->result = put((enum way_out)m->way, m->fd, octets, m->length);
	m->error = errno;
	m->flow.at += m->result > 0 ? (uint64_t)m->result : 0;
	return NULL;
}

static void *move_in(void *of)
{
	struct mover *m = of;
	char octets[100];

	tell(&m->tid);
	errno = 0;
	m->result = get((enum way_in)m->way, m->fd, octets, sizeof(octets));
	m->error = errno;
	if (m->result > 0)
		flow_is(&m->flow, octets, (size_t)m->result);
	return NULL;
}

static pthread_t moving(struct mover *m, void *(*run)(void *))
{
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, run, m) == 0);
	until_asleep(&m->tid);
	return thread;
}

static void set_time(int fd, int option, int ms)
{
	struct timeval limit = {ms / 1000, ms % 1000 * 1000};

	NEED(setsockopt(fd, SOL_SOCKET, option, &limit, sizeof(limit)) == 0);
}

/* The other side gets what was told to have been taken, and then the end. */
static void is_all(struct ends e, struct flow out)
{
	struct flow in = {out.seed, 0};

	NEED(shutdown(e.a, SHUT_WR) == 0);
	CHECK(flow_recv_to_the_end(&in, e.b));
	EQ(in.at, out.at);
	ends_close(e);
}

/* --- without waiting */

static void taken_without_waiting(long both)
{
	struct ends e = tight_ends(both % 2 ? TCP6 : TCP4);
	struct flow out = {1, 0}, in = out;
	static char octets[SOME];
	int full = 0;

	set_nonblocking(e.a, true);
	for (int i = 0; full < 5 && i < 1000; i++) {
		struct flow next = out;
		flow_next(&next, octets, SOME);
		ssize_t sent = put((enum way_out)(both / 2), e.a, octets, SOME);
		if (sent < 0) {
			NEED(errno == EAGAIN || errno == EINTR);
			full += errno == EAGAIN;
			/* Not one call more of the sender is needed for what it has taken. */
			NEED(flow_recv(&in, e.b, out.at - in.at));
			CHECK(wait_for(e.b, POLLIN, 0) == 0);
		} else {
			out.at += (uint64_t)sent;
		}
	}
	EQ(full, 5);
	is_all(e, (struct flow){out.seed, out.at - in.at});
}

/* --- by a time */

static void timed_out_sending(long both)
{
	calm();
	struct ends e = tight_ends(both % 2 ? TCP6 : TCP4);
	struct mover m = {.fd = e.a, .way = both / 2, .length = SOME, .flow = {2, 0}, .result = 1};

	set_time(e.a, SO_SNDTIMEO, 40);
	/* Parts, and then nothing for the whole of the time. */
	for (int i = 0; m.result > 0 && i < 100; i++) {
		double start = now();
		move_out(&m);
		if (m.result < SOME)
			CHECK(now() - start >= 0.035);
	}
	EQ(m.result, -1);
	EQ(m.error, EAGAIN);
	is_all(e, m.flow);
}

static void timed_out_receiving(long both)
{
	calm();
	struct ends e = ends_of(both % 2 ? TCP6 : TCP4);
	struct mover m = {.fd = e.b, .way = both / 2, .flow = {3, 0}};
	struct flow out = m.flow;

	set_time(e.b, SO_RCVTIMEO, 30);
	double start = now();
	move_in(&m);
	CHECK(now() - start >= 0.025);
	EQ(m.result, -1);
	EQ(m.error, EAGAIN);
	NEED(flow_send(&out, e.a, 60) && octets_come(e.b, 60));
	move_in(&m);
	EQ(m.result, 60);
	ends_close(e);
}

/* --- by a signal */

/* Until it has ended: the first signal may come before it is in its call. */
static void signalled_to_its_end(pthread_t thread)
{
	double end = deadline();
	int error;

	while ((error = pthread_tryjoin_np(thread, NULL)) == EBUSY && now() < end) {
		pthread_kill(thread, SIGUSR1);
		sleep_ms(5);
	}
	EQ(error, 0);
}

/* Of much, a part: with SA_RESTART as without (signal(7)). */
static void interrupted_with_a_part(long all)
{
	calm();
	struct ends e = tight_ends(all % 2 ? TCP6 : TCP4);
	struct mover m = {.fd = e.a, .way = all / 4, .length = SOME * 5, .flow = {4, 0}};

	catch_signal(SIGUSR1, all / 2 % 2 ? SA_RESTART : 0);
	signalled_to_its_end(moving(&m, move_out));
	CHECK(m.result > 0 && m.result < SOME * 5);
	is_all(e, m.flow);
}

static void interrupted_with_nothing(long both)
{
	calm();
	struct ends e = tight_ends(both % 2 ? TCP6 : TCP4);
	struct mover m = {.fd = e.a, .way = both / 2, .length = 100, .flow = {5, 0}};

	flow_fill(&m.flow, e.a);
	struct flow before = m.flow;
	catch_signal(SIGUSR1, 0);
	signalled_to_its_end(moving(&m, move_out));
	/* Should its window have opened by a little, it has gone. */
	CHECK(m.result > 0 || (m.result == -1 && m.error == EINTR));
	if (m.result < 0)
		EQ(m.flow.at, before.at);
	is_all(e, m.flow);
}

static void restarted_sending(long both)
{
	calm();
	struct ends e = tight_ends(both % 2 ? TCP6 : TCP4);
	struct mover m = {.fd = e.a, .way = both / 2, .length = 100, .flow = {6, 0}};

	flow_fill(&m.flow, e.a);
	struct flow in = {6, 0};
	uint64_t filled = m.flow.at;
	catch_signal(SIGUSR1, SA_RESTART);
	pthread_t thread = moving(&m, move_out);
	for (int i = 0; i < 4; i++) {
		pthread_kill(thread, SIGUSR1);
		sleep_ms(3);
	}
	/* It waits on, and goes when there is room. */
	NEED(flow_recv(&in, e.b, filled));
	NEED(join_soon(thread, NULL));
	EQ(m.result, 100);
	NEED(flow_recv(&in, e.b, 100));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	ends_close(e);
}

static void interrupted_receiving(long both)
{
	calm();
	struct ends e = ends_of(both % 2 ? TCP6 : TCP4);
	struct mover m = {.fd = e.b, .way = both / 2, .flow = {7, 0}};

	catch_signal(SIGUSR1, 0);
	signalled_to_its_end(moving(&m, move_in));
	EQ(m.result, -1);
	EQ(m.error, EINTR);
	flow_both_ways(e);
	ends_close(e);
}

static void restarted_receiving(long both)
{
	calm();
	struct ends e = ends_of(both % 2 ? TCP6 : TCP4);
	struct mover m = {.fd = e.b, .way = both / 2, .flow = {8, 0}};
	struct flow out = m.flow;

	catch_signal(SIGUSR1, SA_RESTART);
	pthread_t thread = moving(&m, move_in);
	for (int i = 0; i < 4; i++) {
		pthread_kill(thread, SIGUSR1);
		sleep_ms(3);
	}
	NEED(flow_send(&out, e.a, 60));
	NEED(join_soon(thread, NULL));
	EQ(m.result, 60);
	flow_both_ways(e);
	ends_close(e);
}

/* --- by cancellation (pthreads(7)) */

static void cancelled_sending(long both)
{
	calm();
	struct ends e = tight_ends(both % 2 ? TCP6 : TCP4);
	struct mover m = {.fd = e.a, .way = both / 2, .length = SOME * 5, .flow = {9, 0}};
	struct flow in = m.flow, after = {10, 0}, after_in = after;
	char *octets = malloc(SOME * 5 + 5000);
	size_t got = 0, sent = 0;
	ssize_t more;
	void *result = NULL;

	pthread_t thread = moving(&m, move_out);
	EQ(pthread_cancel(thread), 0);
	NEED(join_soon(thread, &result));
	CHECK(result == PTHREAD_CANCELED);
	/* How much had gone nobody says: the beginning, and nothing behind it but what is sent from now on. What is taken
	   here makes room for that; on a busy machine some of the beginning comes later. */
	set_nonblocking(e.b, true);
	while (octets && is_readable(e.b) && (more = recv(e.b, octets + got, SOME * 5 - got, 0)) > 0) {
		got += (size_t)more;
		/* Everything there: no more for a while. */
		if (wait_for(e.b, POLLIN, QUIET) == 0)
			break;
	}
	set_nonblocking(e.b, false);
	for (; sent < 5000; sent += 500)
		NEED(flow_send(&after, e.a, 500));
	NEED(shutdown(e.a, SHUT_WR) == 0);
	while (octets && (more = recv(e.b, octets + got, SOME * 5 + 5000 - got, 0)) > 0)
		got += (size_t)more;
	NEED(octets && got > 5000 && got < SOME * 5 + 5000);
	CHECK(flow_is(&in, octets, got - 5000));
	CHECK(flow_is(&after_in, octets + got - 5000, 5000));
	NEED(flow_send(&after, e.b, 300));
	after_in = (struct flow){after.seed, after.at - 300};
	CHECK(flow_recv(&after_in, e.a, 300));
	free(octets);
	ends_close(e);
}

static void cancelled_receiving(long both)
{
	calm();
	struct ends e = ends_of(both % 2 ? TCP6 : TCP4);
	struct mover m = {.fd = e.b, .way = both / 2, .flow = {11, 0}};
	struct flow out = m.flow, in = out;
	void *result = NULL;

	/* Again and again, with octets between that the next thread finds all. */
	for (int i = 0; i < 4; i++) {
		m.tid = 0;
		pthread_t thread = moving(&m, move_in);
		EQ(pthread_cancel(thread), 0);
		NEED(join_soon(thread, &result));
		CHECK(result == PTHREAD_CANCELED);
		NEED(flow_send(&out, e.a, 300) && flow_recv(&in, e.b, 300));
	}
	flow_both_ways(e);
	ends_close(e);
}

CASES
{
	for (long i = 0; i < 2 * WAYS_OUT; i++) {
		const char *name = way_out_names[i / 2];
		int version = i % 2 ? 6 : 4;
		ADD(taken_without_waiting, i, "tcp%d.cut.%s-without-waiting-takes-a-part", version, name);
		ADD(timed_out_sending, i, "tcp%d.cut.%s-by-the-time", version, name);
		ADD(interrupted_with_nothing, i, "tcp%d.cut.%s-by-a-signal-with-nothing-sent", version, name);
		ADD(restarted_sending, i, "tcp%d.cut.%s-taken-up-after-a-signal", version, name);
	}
	for (long i = 0; i < 4 * WAYS_OUT; i++)
		ADD(interrupted_with_a_part, i, "tcp%d.cut.%s-by-a-signal-with-a-part-sent%s", i % 2 ? 6 : 4,
		    way_out_names[i / 4], i / 2 % 2 ? "-with-restart-too" : "");
	/* What a cancelled splice or sendfile would leave open is not of interest. */
	for (long i = 0; i < 2 * WAYS_OUT_OF_MEMORY; i++)
		ADD(cancelled_sending, i, "tcp%d.cut.%s-by-cancellation", i % 2 ? 6 : 4, way_out_names[i / 2]);
	for (long i = 0; i < 2 * WAYS_IN; i++) {
		/* Both ways have a splice. */
		const char *name = i / 2 == BY_SPLICE_IN ? "splice-in" : way_in_names[i / 2];
		int version = i % 2 ? 6 : 4;
		ADD(timed_out_receiving, i, "tcp%d.cut.%s-by-the-time", version, name);
		ADD(interrupted_receiving, i, "tcp%d.cut.%s-by-a-signal", version, name);
		ADD(restarted_receiving, i, "tcp%d.cut.%s-taken-up-after-a-signal", version, name);
	}
	for (long i = 0; i < 2 * WAYS_INTO_MEMORY; i++)
		ADD(cancelled_receiving, i, "tcp%d.cut.%s-by-cancellation", i % 2 ? 6 : 4, way_in_names[i / 2]);
}
