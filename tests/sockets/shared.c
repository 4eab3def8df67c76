/* One connection in several processes: each uses it, in turns and in the middle of what the other began; one of them
   ends or is killed in its call. */
#include "flow.h"
#include "ready.h"

#include <sched.h>
#include <sys/syscall.h>

/* --- in turns: who has the token knows how far the stream is */

struct turns {
	struct ends e;
	int tokens[2][2]; /* a pipe to each of the two */
	int rounds;
	bool write;
};

static void take_turns(const struct turns *t, int who)
{
	struct flow f = {1, 0};
	unsigned seed = (unsigned)who + 1;
	char octets[2000];

	for (int i = 0; i < t->rounds; i++) {
		NEED(TEMP_FAILURE_RETRY(read(t->tokens[who][0], &f.at, sizeof(f.at))) == sizeof(f.at));
		size_t some = 1 + any_below(&seed, sizeof(octets) - 1);
		if (t->write) {
			NEED(flow_send(&f, t->e.a, some));
		} else {
			NEED(is_readable(t->e.b));
			ssize_t got = recv(t->e.b, octets, some, MSG_DONTWAIT);
			NEED(got > 0 && flow_is(&f, octets, (size_t)got));
		}
		NEED(write(t->tokens[!who][1], &f.at, sizeof(f.at)) == sizeof(f.at));
	}
}

static void second_takes_turns(void *of)
{
	take_turns(of, 1);
}

static struct turns turns_of(long kind, int rounds, bool write)
{
	struct turns t = {.e = ends_of(kind), .rounds = rounds, .write = write};

	NEED(pipe(t.tokens[0]) == 0 && pipe(t.tokens[1]) == 0);
	return t;
}

/* The first turn is the parent's. What the stream came to in the end is in the last token. */
static uint64_t taken_in_turns(struct turns *t)
{
	uint64_t at = 0;

	NEED(write(t->tokens[0][1], &at, sizeof(at)) == sizeof(at));
	pid_t child = start_child(second_takes_turns, t);
	take_turns(t, 0);
	CHECK(child_ended_well(child));
	NEED(read(t->tokens[0][0], &at, sizeof(at)) == sizeof(at));
	return at;
}

static void child_reads_all(void *of)
{
	struct turns *t = of;
	struct flow in = {1, 0};

	close(t->e.a);
	CHECK(flow_recv_to_the_end(&in, t->e.b));
	NEED(write(t->tokens[1][1], &in.at, sizeof(in.at)) == sizeof(in.at));
}

TCPS("shared.two-processes-write-in-turns")
{
	struct turns t = turns_of(kind, 100, true);
	uint64_t came = 0;
	pid_t reader = start_child(child_reads_all, &t);
	uint64_t at = taken_in_turns(&t);

	EQ(close(t.e.a), 0);
	CHECK(child_ended_well(reader));
	NEED(read(t.tokens[1][0], &came, sizeof(came)) == sizeof(came));
	EQ(came, at);
	EQ(close(t.e.b), 0);
}

static void child_writes_much(void *of)
{
	struct turns *t = of;
	struct flow out = {1, 0};
	unsigned seed = 9;

	while (out.at < 2 * 100 * 2000)
		NEED(flow_send(&out, t->e.a, 1 + any_below(&seed, 5000)));
}

TCPS("shared.two-processes-read-in-turns")
{
	struct turns t = turns_of(kind, 100, false);
	struct flow in = {1, 0};
	pid_t writer = start_child(child_writes_much, &t);

	EQ(close(t.e.a), 0);
	in.at = taken_in_turns(&t);
	/* The rest is the parent's. */
	CHECK(flow_recv_to_the_end(&in, t.e.b));
	CHECK(in.at >= 2 * 100 * 2000);
	CHECK(child_ended_well(writer));
	EQ(close(t.e.b), 0);
}

/* --- forks in the middle */

static void child_reads_300(void *of)
{
	struct ends *e = of;
	struct flow in = {2, 100};
	int there = 0;

	EQ(ioctl(e->b, FIONREAD, &there), 0);
	EQ(there, 900);
	NEED(flow_recv(&in, e->b, 300));
}

TCPS("shared.fork-in-the-middle-of-a-message")
{
	struct ends e = ends_of(kind);
	struct flow out = {2, 0}, in = out;

	NEED(flow_send(&out, e.a, 1000) && octets_come(e.b, 1000));
	NEED(flow_recv(&in, e.b, 100));
	CHECK(in_child(child_reads_300, &e));
	in.at = 400;
	NEED(flow_recv(&in, e.b, 600));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	flow_both_ways(e);
	ends_close(e);
}

static void child_looks(void *of)
{
	struct ends *e = of;
	struct flow in = {3, 50};
	char octets[200];

	EQ(recv(e->b, octets, 200, MSG_PEEK), 150);
	CHECK(flow_is(&in, octets, 150));
}

TCPS("shared.what-a-child-looked-at-is-there-yet")
{
	struct ends e = ends_of(kind);
	struct flow out = {3, 0}, in = out;
	char octets[200];

	NEED(flow_send(&out, e.a, 200) && octets_come(e.b, 200));
	EQ(recv(e.b, octets, 200, MSG_PEEK), 200);
	NEED(flow_recv(&in, e.b, 50));
	CHECK(in_child(child_looks, &e));
	NEED(flow_recv(&in, e.b, 150));
	ends_close(e);
}

static void child_begins(void *of)
{
	struct ends *e = of;
	struct flow out = {4, 0}, in = {5, 0};

	NEED(flow_send(&out, e->a, 700) && flow_send(&in, e->b, 300));
}

TCPS("shared.fork-before-the-first-octet")
{
	struct ends e = ends_of(kind);
	struct flow out = {4, 0}, in = out, back = {5, 0}, back_in = back;

	/* A child makes the first call of all on both ends, and the parent the next. */
	CHECK(in_child(child_begins, &e));
	out.at = 700;
	back.at = 300;
	NEED(flow_send(&out, e.a, 100) && flow_send(&back, e.b, 100));
	NEED(flow_recv(&in, e.b, 800) && flow_recv(&back_in, e.a, 400));
	flow_both_ways(e);
	ends_close(e);
}

static void child_answers(void *of)
{
	struct ends *e = of;
	struct flow in = {6, 0}, out = {7, 0};

	NEED(flow_recv(&in, e->b, 500) && flow_send(&out, e->b, 500));
}

TCPS("shared.children-one-after-the-other")
{
	struct ends e = ends_of(kind);

	for (int i = 0; i < 8; i++) {
		struct flow out = {6, 0}, in = {7, 0};
		pid_t child = start_child(child_answers, &e);
		NEED(flow_send(&out, e.a, 500) && flow_recv(&in, e.a, 500));
		CHECK(child_ended_well(child));
	}
	flow_both_ways(e);
	ends_close(e);
}

static void goes_on_in_a_grandchild(void *of)
{
	struct ends *e = of;
	struct flow in = {8, 0}, out = {9, 0};
	pid_t child;

	close(e->a);
	NEED(flow_recv(&in, e->b, 100));
	child = fork();
	NEED(child >= 0);
	/* As daemons do: the first ends, and its child has the connection alone. */
	if (child > 0)
		_exit(0);
	NEED(flow_recv(&in, e->b, 400));
	NEED(flow_send(&out, e->b, 300));
}

TCPS("shared.the-child-that-had-it-ends-and-its-child-goes-on")
{
	struct ends e = ends_of(kind);
	struct flow out = {8, 0}, in = {9, 0};

	NEED(flow_send(&out, e.a, 200));
	pid_t child = start_child(goes_on_in_a_grandchild, &e);
	EQ(close(e.b), 0);
	CHECK(child_ended_well(child));
	NEED(flow_send(&out, e.a, 300));
	CHECK(flow_recv_to_the_end(&in, e.a));
	EQ(in.at, 300);
	EQ(close(e.a), 0);
}

/* --- one of them is killed in its call */

/* Asleep in a call, as the kernel has it (proc_pid_stat(5)). */
static void until_it_sleeps(pid_t child)
{
	char path[64], state = 0;
	int asleep = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", child);
	for (double end = deadline(); asleep < 3 && now() < end; sleep_ms(2)) {
		FILE *file = fopen(path, "r");
		NEED(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
		fclose(file);
		asleep = state == 'S' ? asleep + 1 : 0;
	}
	EQ(state, 'S');
}

/* The number of the call that the process is in, or less than 0. */
static long call_of(pid_t child)
{
	char path[64];
	long number = -1;

	snprintf(path, sizeof(path), "/proc/%d/syscall", child);
	FILE *file = fopen(path, "r");
	NEED(file);
	/* A process that is in none has a word there, or a number below 0. */
	if (fscanf(file, "%ld", &number) != 1)
		number = -1;
	fclose(file);
	return number;
}

/* Whether a process that is in this call waits there for a peer: the other calls of a send or a receive do not wait. */
static bool is_wait(long call)
{
#ifdef SYS_poll
	if (call == SYS_poll)
		return true;
#endif
	return call == SYS_sendto || call == SYS_recvfrom || call == SYS_ppoll;
}

/* Stops a process where it waits. A full socket may have room again in the instant between, as what was sent into a
   closed window is sent anew; then the process goes on, and is stopped another time. */
static void stop_while_it_waits(pid_t child)
{
	double end = deadline();

	for (;;) {
		int status;
		until_it_sleeps(child);
		EQ(kill(child, SIGSTOP), 0);
		EQ(TEMP_FAILURE_RETRY(waitpid(child, &status, WUNTRACED)), child);
		NEED(WIFSTOPPED(status));
		if (is_wait(call_of(child)))
			return;
		NEED(now() < end);
		EQ(kill(child, SIGCONT), 0);
	}
}

static void end_by_kill(pid_t child)
{
	int status = 0;

	EQ(kill(child, SIGKILL), 0);
	EQ(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)), child);
	CHECK(WIFSIGNALED(status));
}

static void child_blocks_reading(void *of)
{
	struct ends *e = of;
	char octet;

	recv(e->b, &octet, 1, 0);
}

TCPS("shared.killed-while-it-waits-for-octets")
{
	struct ends e = ends_of(kind);
	struct flow out = {10, 0}, in = out;

	for (int i = 0; i < 4; i++) {
		pid_t child = start_child(child_blocks_reading, &e);
		until_it_sleeps(child);
		end_by_kill(child);
		NEED(flow_send(&out, e.a, 200) && flow_recv(&in, e.b, 200));
		EQ(wait_for(e.b, POLLIN, 0), 0);
	}
	flow_both_ways(e);
	ends_close(e);
}

/* Writes one and the same octet for ever. */
static void child_writes_for_ever(int fd, int octet)
{
	char octets[7777];

	memset(octets, octet, sizeof(octets));
	while (send(fd, octets, sizeof(octets), MSG_NOSIGNAL) > 0)
		;
}

/* A run of that octet, however long, and then so many of another and nothing more. */
static void reads_run_and_then(int fd, int octet, int other, size_t count)
{
	unsigned char octets[16384];
	size_t others = 0, wrong = 0;

	while (others < count && !wrong) {
		NEED(is_readable(fd));
		ssize_t got = recv(fd, octets, sizeof(octets), 0);
		NEED(got > 0);
		for (ssize_t i = 0; i < got; i++) {
			others += octets[i] == other;
			wrong += octets[i] != (others ? other : octet);
		}
	}
	EQ(wrong, 0);
	EQ(others, count);
}

TCPS("shared.killed-while-it-waits-for-room")
{
	struct ends e = tight_ends(kind);
	char octets[300];

	memset(octets, 0xff, sizeof(octets));
	for (int i = 1; i <= 4; i++) {
		pid_t child = fork();
		NEED(child >= 0);
		if (child == 0)
			child_writes_for_ever(e.a, i);
		until_it_sleeps(child);
		end_by_kill(child);
		/* Behind what it had sent goes what others send. */
		pid_t reader = fork();
		NEED(reader >= 0);
		if (reader == 0) {
			reads_run_and_then(e.b, i, 0xff, sizeof(octets));
			_exit(0);
		}
		NEED(send_all(e.a, octets, sizeof(octets)));
		CHECK(child_ended_well(reader));
		EQ(wait_for(e.b, POLLIN, 0), 0);
	}
	flow_both_ways(e);
	ends_close(e);
}

TCPS("shared.stopped-in-its-call-it-holds-up-nobody")
{
	struct ends e = tight_ends(kind);
	struct flow back = {12, 0}, back_in = back;
	unsigned char octets[300];

	memset(octets, 0xff, sizeof(octets));
	pid_t writer = fork();
	NEED(writer >= 0);
	if (writer == 0)
		child_writes_for_ever(e.a, 1);
	pid_t waiter = fork();
	NEED(waiter >= 0);
	if (waiter == 0) {
		recv(e.a, octets, 1, 0);
		_exit(0);
	}
	stop_while_it_waits(writer);
	stop_while_it_waits(waiter);
	pid_t reader = fork();
	NEED(reader >= 0);
	if (reader == 0) {
		reads_run_and_then(e.b, 1, 0xff, sizeof(octets));
		_exit(0);
	}
	NEED(send_all(e.a, octets, sizeof(octets)));
	CHECK(child_ended_well(reader));
	NEED(flow_send(&back, e.b, 500) && flow_recv(&back_in, e.a, 500));
	end_by_kill(writer);
	end_by_kill(waiter);
	flow_both_ways(e);
	ends_close(e);
}

TCPS("shared.killed-anywhere-while-it-writes")
{
	struct ends e = ends_of(kind);
	char octets[300];

	memset(octets, 0xff, sizeof(octets));
	for (int i = 1; i <= 12; i++) {
		pid_t child = fork();
		NEED(child >= 0);
		if (child == 0)
			child_writes_for_ever(e.a, i);
		pid_t reader = fork();
		NEED(reader >= 0);
		if (reader == 0) {
			reads_run_and_then(e.b, i, 0xff, sizeof(octets));
			_exit(0);
		}
		sleep_ms(i % 4);
		end_by_kill(child);
		NEED(send_all(e.a, octets, sizeof(octets)));
		CHECK(child_ended_well(reader));
	}
	EQ(wait_for(e.b, POLLIN, 0), 0);
	flow_both_ways(e);
	ends_close(e);
}

static void child_reads_for_ever(void *of)
{
	struct ends *e = of;
	char octets[700];

	while (recv(e->b, octets, sizeof(octets), 0) > 0)
		;
	pause();
}

TCPS("shared.killed-anywhere-while-it-reads")
{
	enum { MUCH = 2000000 };

	for (int i = 0; i < 8; i++) {
		struct ends e = ends_of(kind);
		struct flow out = {11, 0};
		pid_t child = start_child(child_reads_for_ever, &e), writer = fork();
		NEED(writer >= 0);
		if (writer == 0) {
			close(e.b);
			NEED(flow_send(&out, e.a, MUCH) && shutdown(e.a, SHUT_WR) == 0);
			_exit(0);
		}
		usleep((useconds_t)i * 300);
		end_by_kill(child);
		/* What it took is gone with it; the rest comes whole, up to the end. */
		static char octets[MUCH];
		size_t got = 0;
		ssize_t more;
		while (is_readable(e.b) && (more = recv(e.b, octets + got, MUCH - got, 0)) > 0)
			got += (size_t)more;
		struct flow in = {11, MUCH - got};
		CHECK(flow_is(&in, octets, got));
		CHECK(child_ended_well(writer));
		ends_close(e);
	}
}

/* --- in two PID namespaces: each has numbers of its own, by which nobody of the other is known */

struct senders {
	struct ends e;
	double until;
};

static void sends_for_a_while(const struct senders *s, unsigned seed)
{
	static const char octets[60000];

	while (now() < s->until) {
		size_t some = 1 + any_below(&seed, sizeof(octets) - 1);
		NEED(send_all(s->e.a, octets, some));
	}
}

static void child_sends_for_a_while(void *of)
{
	sends_for_a_while(of, 2);
}

static void receives_all(void *of)
{
	static char octets[100000];
	const struct senders *s = of;
	ssize_t got;

	EQ(close(s->e.a), 0);
	while ((got = recv(s->e.b, octets, sizeof(octets), 0)) > 0)
		;
	EQ(got, 0);
}

TCPS("shared.by-two-pid-namespaces")
{
	struct senders s = {.e = ends_of(kind)};
	pid_t receiver = start_child(receives_all, &s);

	EQ(close(s.e.b), 0);
	/* From here on it is children of this process that are in another. */
	if (unshare(CLONE_NEWPID) != 0) {
		EQ(close(s.e.a), 0);
		CHECK(child_ended_well(receiver));
		SKIP("a PID namespace is not allowed here (%s)", strerror(errno));
	}
	s.until = now() + 1;
	pid_t child = start_child(child_sends_for_a_while, &s);
	sends_for_a_while(&s, 1);
	CHECK(child_ended_well(child));
	EQ(close(s.e.a), 0);
	CHECK(child_ended_well(receiver));
}
