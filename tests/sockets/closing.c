/* The end of a connection: close with octets unread or unsent, lingering, the end of the process; and a descriptor's
   number that is taken anew. */
#include "flow.h"
#include "ready.h"
#include "waiter.h"

#include <setjmp.h>

static void linger(int fd, int seconds)
{
	struct linger set = {1, seconds};

	NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &set, sizeof(set)) == 0);
}

/* --- with octets unread: the peer is told by a reset */

static void reset_is_told(int fd)
{
	char got[64];

	NEED(wait_for(fd, 0, patience) & POLLERR);
	FAILS(recv(fd, got, sizeof(got), 0), ECONNRESET);
	EQ(recv(fd, got, sizeof(got), 0), 0);
	FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
}

TCPS("closing.with-a-part-unread-resets")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "abcdef", 6, 0), 6);
	NEED(octets_come(e.b, 6));
	EQ(recv(e.b, got, 5, 0), 5);
	EQ(close(e.b), 0);
	reset_is_told(e.a);
	EQ(close(e.a), 0);
}

TCPS("closing.with-all-only-looked-at-resets")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "abcdef", 6, 0), 6);
	NEED(octets_come(e.b, 6));
	EQ(recv(e.b, got, 8, MSG_PEEK), 6);
	EQ(close(e.b), 0);
	reset_is_told(e.a);
	EQ(close(e.a), 0);
}

TCPS("closing.with-a-second-message-unread-resets")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "abc", 3, 0), 3);
	EQ(send(e.a, "def", 3, 0), 3);
	NEED(octets_come(e.b, 6));
	EQ(recv(e.b, got, 3, 0), 3);
	EQ(close(e.b), 0);
	reset_is_told(e.a);
	EQ(close(e.a), 0);
}

TCPS("closing.with-all-read-is-in-order")
{
	struct ends e = ends_of(kind);
	struct flow out = {1, 0}, in = out;
	char got[8];
	unsigned seed = 1;

	for (int i = 0; i < 20; i++) {
		NEED(flow_send(&out, e.a, 1 + any_below(&seed, 3000)));
		NEED(flow_recv(&in, e.b, out.at - in.at));
	}
	EQ(send(e.b, "bye", 3, 0), 3);
	EQ(close(e.b), 0);
	/* Not a reset: nothing was left behind. */
	NEED(recv_all(e.a, got, 3));
	EQ(recv(e.a, got, 8, 0), 0);
	EQ(get_int(e.a, SOL_SOCKET, SO_ERROR), 0);
	EQ(wait_for(e.a, POLLIN | POLLRDHUP, 0), POLLIN | POLLRDHUP);
	EQ(close(e.a), 0);
}

TCPS("closing.with-all-thrown-away-is-in-order")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "abcdef", 6, 0), 6);
	NEED(octets_come(e.b, 6));
	EQ(recv(e.b, NULL, 6, MSG_TRUNC), 6);
	EQ(close(e.b), 0);
	EQ(recv(e.a, got, 8, 0), 0);
	EQ(get_int(e.a, SOL_SOCKET, SO_ERROR), 0);
	EQ(close(e.a), 0);
}

TCPS("closing.of-a-copy-with-octets-unread-resets-nothing")
{
	struct ends e = ends_of(kind);
	int copy = dup(e.b);
	char got[8];

	EQ(send(e.a, "abc", 3, 0), 3);
	NEED(octets_come(e.b, 3));
	EQ(recv(copy, got, 1, 0), 1);
	EQ(close(copy), 0);
	EQ(recv(e.b, got, 8, 0), 2);
	SAME(got, "bc", 2);
	talks(e.a, e.b);
	talks(e.b, e.a);
	ends_close(e);
}

/* --- lingering */

TCPS("closing.with-linger-0-drops-what-was-not-sent")
{
	struct ends e = tight_ends(kind);
	struct flow out = {2, 0}, in = out;
	char octets[16384];
	ssize_t got;

	flow_fill(&out, e.a);
	linger(e.a, 0);
	EQ(close(e.a), 0);
	NEED(wait_for(e.b, 0, patience) & POLLERR);
	/* What had come by then may be read; then it is a reset. */
	while ((got = recv(e.b, octets, sizeof(octets), 0)) > 0)
		NEED(flow_is(&in, octets, (size_t)got));
	EQ(got, -1);
	EQ(errno, ECONNRESET);
	CHECK(in.at < out.at);
	EQ(close(e.b), 0);
}

TCPS("closing.with-linger-waits-for-a-reader")
{
	calm();
	struct ends e = tight_ends(kind);
	struct flow out = {3, 0};
	int closed[2];
	char octet;

	flow_fill(&out, e.a);
	NEED(pipe(closed) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		struct flow in = {3, 0};
		close(e.a);
		NEED(write(closed[1], "", 1) == 1);
		sleep_ms(50);
		CHECK(flow_recv_to_the_end(&in, e.b));
		EQ(in.at, out.at);
		_exit(0);
	}
	linger(e.a, 40);
	/* It is the last close that waits: ours. The reader's time begins behind this, wherever a machine stands still. */
	double start = now();
	NEED(read(closed[0], &octet, 1) == 1);
	EQ(close(e.b), 0);
	EQ(close(e.a), 0);
	/* Until the reader took it, far from the end of its time. */
	CHECK(now() - start > 0.01 && now() - start < 30);
	CHECK(child_ended_well(child));
}

CASE("tcp4.closing.with-linger-gives-up-and-loses-nothing")
{
	calm();
	struct ends e = tight_ends(TCP4);
	struct flow out = {4, 0}, in = out;

	flow_fill(&out, e.a);
	linger(e.a, 1);
	double start = now();
	EQ(close(e.a), 0);
	CHECK(now() - start >= 0.9);
	/* The kernel goes on sending. */
	CHECK(flow_recv_to_the_end(&in, e.b));
	EQ(in.at, out.at);
	EQ(close(e.b), 0);
}

/* --- with octets on their way: they all come */

static void took_all(struct ends e, uint64_t length)
{
	struct flow in = {5, 0};

	CHECK(flow_recv_to_the_end(&in, e.b));
	EQ(in.at, length);
	EQ(close(e.b), 0);
}

TCPS("closing.what-a-full-socket-took-comes")
{
	struct ends e = tight_ends(kind);
	struct flow out = {5, 0};

	flow_fill(&out, e.a);
	EQ(close(e.a), 0);
	took_all(e, out.at);
}

/* A child fills its socket, says how much that was, and ends in some way. */
enum ending { BY_EXIT, BY_KILL, BY_EXEC };

static void fills_and_ends(struct ends e, int tell_by, enum ending how)
{
	struct flow out = {5, 0};

	close(e.b);
	flow_fill(&out, e.a);
	NEED(write(tell_by, &out.at, sizeof(out.at)) == sizeof(out.at));
	NEED(fcntl(e.a, F_SETFD, FD_CLOEXEC) == 0);
	switch (how) {
	case BY_EXIT: _exit(0);
	case BY_KILL: kill(getpid(), SIGKILL); break;
	default: execl("/bin/sleep", "sleep", "1000", NULL);
	}
	_exit(127);
}

static void full_and_ended(long both)
{
	struct ends e = tight_ends(both % 2 ? TCP6 : TCP4);
	enum ending how = (enum ending)(both / 2);
	uint64_t length = 0;
	int told[2], status;

	NEED(pipe(told) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0)
		fills_and_ends(e, told[1], how);
	EQ(close(e.a), 0);
	EQ(read(told[0], &length, sizeof(length)), sizeof(length));
	took_all(e, length);
	if (how == BY_EXEC)
		EQ(kill(child, SIGKILL), 0);
	EQ(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)), child);
	EQ(WIFSIGNALED(status), how != BY_EXIT);
}

CASES
{
	static const char *const names[] = {"exit", "kill", "exec"};

	for (long i = 0; i < 6; i++)
		ADD(full_and_ended, i, "tcp%d.closing.by-%s-what-a-full-socket-took-comes", i % 2 ? 6 : 4,
		    names[i / 2]);
}

static void ends_with_octets_unread(void *of)
{
	struct ends *e = of;
	char got[4];

	close(e->a);
	NEED(recv_all(e->b, got, 3));
}

TCPS("closing.by-exit-with-octets-unread-resets")
{
	struct ends e = ends_of(kind);

	EQ(send(e.a, "abcdef", 6, 0), 6);
	NEED(octets_come(e.b, 6));
	pid_t child = start_child(ends_with_octets_unread, &e);
	EQ(close(e.b), 0);
	CHECK(child_ended_well(child));
	reset_is_told(e.a);
	EQ(close(e.a), 0);
}

/* --- while a thread of this process or the peer is in a call */

TCPS("closing.by-another-thread-leaves-the-blocked-call")
{
	calm();
	struct ends e = ends_of(kind), other;
	struct waiter w = {.fd = e.b};
	pthread_t thread = waiting(&w, wait_recv);

	EQ(close(e.b), 0);
	/* Its number is taken by another connection, whose octets are not the blocked call's. */
	other = ends_of(kind);
	talks(other.a, other.b);
	talks(other.b, other.a);
	EQ(send(e.a, "late", 4, 0), 4);
	NEED(join_soon(thread, NULL));
	EQ(w.result, 4);
	SAME(w.octets, "late", 4);
	ends_close(other);
	EQ(close(e.a), 0);
}

TCPS("closing.with-a-reset-wakes-the-blocked-reader")
{
	calm();
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.b};
	pthread_t thread = waiting(&w, wait_recv);

	linger(e.a, 0);
	EQ(close(e.a), 0);
	NEED(join_soon(thread, NULL));
	EQ(w.result, -1);
	EQ(w.error, ECONNRESET);
	EQ(close(e.b), 0);
}

TCPS("closing.with-octets-unread-wakes-the-blocked-writer")
{
	calm();
	struct ends e = tight_ends(kind);
	struct waiter w = {.fd = e.a};
	pthread_t thread = waiting(&w, wait_send);

	EQ(close(e.b), 0);
	NEED(join_soon(thread, NULL));
	CHECK(w.result > 0 ? w.result < 1 << 22 : w.error == ECONNRESET);
	char got[4];
	ssize_t result = recv(e.a, got, 4, 0);
	CHECK(result == 0 || (result == -1 && errno == ECONNRESET));
	FAILS(send(e.a, "x", 1, MSG_NOSIGNAL), EPIPE);
	EQ(close(e.a), 0);
}

/* --- a number that is taken anew */

TCPS("closing.a-new-one-on-the-number-has-nothing-of-the-old")
{
	for (int i = 0; i < 20; i++) {
		struct ends old = ends_of(kind);
		struct flow out = {6, 0}, in = out;
		NEED(flow_send(&out, old.a, 500) && flow_recv(&in, old.b, 100));
		/* By close, and by dup2 over it. */
		struct ends other = {-1, -1};
		if (i % 2) {
			struct ends fresh = ends_of(kind);
			NEED(dup2(fresh.a, old.a) == old.a && dup2(fresh.b, old.b) == old.b);
			ends_close(fresh);
			other = old;
		} else {
			ends_close(old);
			other = ends_of(kind);
		}
		EQ(wait_for(other.a, POLLIN | POLLRDHUP, 0), 0);
		EQ(wait_for(other.b, POLLIN | POLLRDHUP, 0), 0);
		flow_both_ways(other);
		ends_close(other);
	}
}

/* --- out of a call by a jump */

static sigjmp_buf out;

static void jumps(int signal)
{
	(void)signal;
	siglongjmp(out, 1);
}

static void jumps_out_of(void (*call)(int), int fd)
{
	struct sigaction action = {.sa_handler = jumps};
	struct itimerval soon = {.it_value.tv_usec = 20000};

	NEED(sigaction(SIGALRM, &action, NULL) == 0);
	if (sigsetjmp(out, 1) == 0) {
		NEED(setitimer(ITIMER_REAL, &soon, NULL) == 0);
		call(fd);
		CHECK(false);
	}
}

static void receives(int fd)
{
	char octet;

	recv(fd, &octet, 1, 0);
}

static void sends(int fd)
{
	static char octets[1 << 20];

	for (;;)
		NEED(send(fd, octets, sizeof(octets), 0) > 0);
}

TCPS("closing.ends-though-a-receive-was-jumped-out-of")
{
	calm();
	struct ends e = ends_of(kind);
	char octet;

	talks(e.a, e.b);
	for (int i = 0; i < 3; i++)
		jumps_out_of(receives, e.b);
	/* Others go on as they were. */
	talks(e.a, e.b);
	talks(e.b, e.a);
	EQ(close(e.b), 0);
	NEED(is_readable(e.a));
	EQ(recv(e.a, &octet, 1, MSG_DONTWAIT), 0);
	EQ(close(e.a), 0);
}

TCPS("closing.ends-though-a-send-was-jumped-out-of")
{
	calm();
	struct ends e = tight_ends(kind);
	char octets[4096];
	ssize_t got;

	jumps_out_of(sends, e.b);
	EQ(close(e.b), 0);
	while ((got = recv(e.a, octets, sizeof(octets), 0)) > 0)
		;
	EQ(got, 0);
	EQ(close(e.a), 0);
}
