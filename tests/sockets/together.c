/* Several who use one connection at the same time, threads or processes: TCP does not keep their writes whole, but each
   octet arrives once, and those of one writer in their order. */
#include "flow.h"
#include "ways.h"

enum { WRITERS = 4, EACH = 60000, LARGEST = 4000 };

/* A writer's octets tell who wrote them and, in six bits, which they are. */
static void octets_of(int writer, size_t from, unsigned char *to, size_t length)
{
	for (size_t i = 0; i < length; i++)
		to[i] = (unsigned char)(writer << 6 | ((from + i) & 63));
}

struct one_of {
	int fd, who;
	/* Of a reader: how many it took, and how many of each value. */
	size_t count, values[256];
	pthread_t thread;
};

/* By a way of their own each, in writes of any size. */
static void *write_octets(void *of)
{
	struct one_of *w = of;
	unsigned char octets[LARGEST];
	unsigned seed = (unsigned)w->who;

	while (w->count < EACH) {
		size_t some = 1 + any_below(&seed, LARGEST - 1);
		if (some > EACH - w->count)
			some = EACH - w->count;
		octets_of(w->who, w->count, octets, some);
		ssize_t sent = put((enum way_out)(w->who % WAYS_OUT_OF_MEMORY), w->fd, octets, some);
		NEED(sent > 0 || errno == EINTR);
		w->count += sent > 0 ? (size_t)sent : 0;
	}
	return NULL;
}

/* All of them, and each writer's in its order. */
static void read_in_order(int fd)
{
	static unsigned char octets[20000];
	size_t next[WRITERS] = {}, total = 0, wrong = 0;

	while (total < (size_t)WRITERS * EACH) {
		NEED(is_readable(fd));
		ssize_t got = recv(fd, octets, sizeof(octets), 0);
		NEED(got > 0);
		for (ssize_t i = 0; i < got; i++)
			wrong += (octets[i] & 63) != (next[octets[i] >> 6]++ & 63);
		total += (size_t)got;
		NEED(wrong == 0);
	}
	for (int i = 0; i < WRITERS; i++)
		EQ(next[i], EACH);
	EQ(wait_for(fd, POLLIN, 0), 0);
}

TCPS("together.threads-write")
{
	struct ends e = ends_of(kind);
	struct one_of w[WRITERS] = {};

	for (int i = 0; i < WRITERS; i++) {
		w[i] = (struct one_of){.fd = e.a, .who = i};
		NEED(pthread_create(&w[i].thread, NULL, write_octets, &w[i]) == 0);
	}
	read_in_order(e.b);
	for (int i = 0; i < WRITERS; i++)
		NEED(join_soon(w[i].thread, NULL));
	ends_close(e);
}

static void child_writes(void *of)
{
	write_octets(of);
}

TCPS("together.processes-write")
{
	struct ends e = ends_of(kind);
	pid_t children[WRITERS - 1];
	struct one_of w[WRITERS];

	for (int i = 0; i < WRITERS; i++)
		w[i] = (struct one_of){.fd = e.a, .who = i};
	for (int i = 0; i < WRITERS - 1; i++)
		children[i] = start_child(child_writes, &w[i]);
	/* The parent is one of them, by a thread. */
	NEED(pthread_create(&w[WRITERS - 1].thread, NULL, write_octets, &w[WRITERS - 1]) == 0);
	read_in_order(e.b);
	NEED(join_soon(w[WRITERS - 1].thread, NULL));
	for (int i = 0; i < WRITERS - 1; i++)
		CHECK(child_ended_well(children[i]));
	ends_close(e);
}

TCPS("together.children-of-a-process-in-the-middle-of-a-write")
{
	struct ends e = ends_of(kind);
	pid_t children[WRITERS - 1], reader;
	struct one_of w[WRITERS];

	reader = fork();
	NEED(reader >= 0);
	if (reader == 0) {
		read_in_order(e.b);
		_exit(0);
	}
	for (int i = 0; i < WRITERS; i++)
		w[i] = (struct one_of){.fd = e.a, .who = i};
	NEED(pthread_create(&w[WRITERS - 1].thread, NULL, write_octets, &w[WRITERS - 1]) == 0);
	/* Whatever the thread holds while it writes, nobody lets go of in the child. */
	for (int i = 0; i < WRITERS - 1; i++)
		children[i] = start_child(child_writes, &w[i]);
	for (int i = 0; i < WRITERS - 1; i++)
		CHECK(child_ended_well(children[i]));
	NEED(join_soon(w[WRITERS - 1].thread, NULL));
	CHECK(child_ended_well(reader));
	ends_close(e);
}

/* A handler is one of the writers: in the middle of the writes that it interrupts. */
static struct one_of in_handler;

static void write_in_handler(int signal)
{
	int before = errno;
	unsigned char octets[50];
	size_t left = EACH - in_handler.count, some = left < sizeof(octets) ? left : sizeof(octets);

	(void)signal;
	octets_of(in_handler.who, in_handler.count, octets, some);
	ssize_t sent = some ? send(in_handler.fd, octets, some, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
	in_handler.count += sent > 0 ? (size_t)sent : 0;
	errno = before;
}

TCPS("together.a-handler-amid-the-writes-that-it-interrupts")
{
	calm();
	struct ends e = ends_of(kind);
	struct sigaction action = {.sa_handler = write_in_handler, .sa_flags = SA_RESTART};
	struct itimerval timer = {{0, 100}, {0, 100}};
	struct one_of w[WRITERS];
	pid_t reader = fork();

	NEED(reader >= 0);
	if (reader == 0) {
		read_in_order(e.b);
		_exit(0);
	}
	in_handler = (struct one_of){.fd = e.a, .who = WRITERS - 1};
	NEED(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
	for (int i = 0; i < WRITERS - 1; i++) {
		w[i] = (struct one_of){.fd = e.a, .who = i};
		write_octets(&w[i]);
	}
	/* Where every signal came amid a write the handler was told EINTR each time. Now there is none. */
	for (int i = 0; i < 100 && !in_handler.count; i++)
		sleep_ms(1);
	calm();
	CHECK(in_handler.count > 0);
	/* What it had no time for. */
	write_octets(&in_handler);
	CHECK(child_ended_well(reader));
	ends_close(e);
}

/* --- several who read */

static void *read_some(void *of)
{
	struct one_of *r = of;
	unsigned char octets[LARGEST];
	unsigned seed = (unsigned)r->who;

	for (;;) {
		ssize_t got = get((enum way_in)(r->who % WAYS_INTO_MEMORY), r->fd, octets,
				  1 + any_below(&seed, LARGEST - 1));
		if (got == 0)
			return NULL;
		NEED(got > 0 || errno == EINTR);
		for (ssize_t i = 0; i < got; i++)
			r->values[octets[i]]++;
		r->count += got > 0 ? (size_t)got : 0;
	}
}

/* What both have sent, and where. */
static volatile size_t sent_in_handler;
static int full_fd;

static void send_in_handler(int signal)
{
	int before = errno;
	ssize_t sent = send(full_fd, "handler", 7, MSG_DONTWAIT | MSG_NOSIGNAL);

	(void)signal;
	sent_in_handler += sent > 0 ? (size_t)sent : 0;
	errno = before;
}

/* Neither waits: both are told that the socket is full, or that a call is under way. */
TCPS("together.a-handler-amid-writes-to-a-full-socket")
{
	calm();
	struct ends e = ends_of(kind);
	struct sigaction action = {.sa_handler = send_in_handler, .sa_flags = SA_RESTART};
	struct itimerval timer = {{0, 100}, {0, 100}};
	char octets[LARGEST] = "";
	size_t sent = 0;
	struct one_of reader = {.fd = e.b};

	full_fd = e.a;
	/* One that hardly keeps up, so that the socket takes parts. */
	NEED(pthread_create(&reader.thread, NULL, read_some, &reader) == 0);
	NEED(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
	for (double until = now() + 0.3; now() < until;) {
		ssize_t some = send(e.a, octets, sizeof(octets), MSG_DONTWAIT | MSG_NOSIGNAL);
		CHECK(some > 0 || errno == EAGAIN || errno == EINTR);
		sent += some > 0 ? (size_t)some : 0;
	}
	calm();
	EQ(shutdown(e.a, SHUT_WR), 0);
	NEED(join_soon(reader.thread, NULL));
	EQ(reader.count, sent + sent_in_handler);
	ends_close(e);
}

/* What all have read together is what was sent: each octet once. */
static void is_each_octet_once(const struct one_of *readers, int count, size_t sent)
{
	struct flow f = {1, 0};
	size_t values[256] = {}, total = 0, wrong = 0;
	unsigned char octets[LARGEST];

	for (size_t done = 0; done < sent; done += LARGEST) {
		flow_next(&f, octets, LARGEST);
		for (size_t i = 0; i < LARGEST && done + i < sent; i++)
			values[octets[i]]++;
	}
	for (int i = 0; i < count; i++) {
		total += readers[i].count;
		for (int j = 0; j < 256; j++)
			values[j] -= readers[i].values[j];
	}
	EQ(total, sent);
	for (int i = 0; i < 256; i++)
		wrong += values[i] != 0;
	EQ(wrong, 0);
}

enum { READERS = 3, SENT = 300001 };

TCPS("together.threads-read")
{
	struct ends e = ends_of(kind);
	struct flow out = {1, 0};
	static struct one_of r[READERS];

	for (int i = 0; i < READERS; i++) {
		r[i] = (struct one_of){.fd = e.b, .who = i};
		NEED(pthread_create(&r[i].thread, NULL, read_some, &r[i]) == 0);
	}
	NEED(flow_send(&out, e.a, SENT) && shutdown(e.a, SHUT_WR) == 0);
	for (int i = 0; i < READERS; i++)
		NEED(join_soon(r[i].thread, NULL));
	is_each_octet_once(r, READERS, SENT);
	ends_close(e);
}

struct reading_child {
	struct one_of *reader;
	int tell_by;
};

static void child_reads(void *of)
{
	struct reading_child *c = of;

	read_some(c->reader);
	/* More than a pipe takes at once; the parent reads. */
	NEED(send_all(c->tell_by, c->reader, sizeof(*c->reader)));
}

TCPS("together.processes-read")
{
	struct ends e = ends_of(kind);
	struct flow out = {1, 0};
	static struct one_of r[READERS], own;
	struct reading_child c[READERS];
	pid_t children[READERS];
	int told[READERS][2];

	for (int i = 0; i < READERS; i++) {
		NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, told[i]) == 0);
		own = (struct one_of){.fd = e.b, .who = i};
		c[i] = (struct reading_child){&own, told[i][1]};
		children[i] = start_child(child_reads, &c[i]);
	}
	NEED(flow_send(&out, e.a, SENT) && shutdown(e.a, SHUT_WR) == 0);
	for (int i = 0; i < READERS; i++) {
		NEED(recv_all(told[i][0], &r[i], sizeof(r[i])));
		CHECK(child_ended_well(children[i]));
	}
	is_each_octet_once(r, READERS, SENT);
	ends_close(e);
}

/* --- one who writes and one who reads at the same end, with one who looks */

struct both {
	int fd;
	struct flow out, in;
};

static void *write_side(void *of)
{
	struct both *b = of;
	unsigned seed = b->out.seed;

	while (b->out.at < SENT)
		NEED(flow_send(&b->out, b->fd, 1 + any_below(&seed, 9000)));
	NEED(shutdown(b->fd, SHUT_WR) == 0);
	return NULL;
}

static void *read_side(void *of)
{
	struct both *b = of;

	CHECK(flow_recv_to_the_end(&b->in, b->fd));
	return NULL;
}

static volatile bool over;

/* Calls that change nothing, all the time. */
static void *look(void *of)
{
	struct both *b = of;
	int there;
	char octet;

	while (!over) {
		NEED(ioctl(b->fd, FIONREAD, &there) == 0 && there >= 0);
		wait_for(b->fd, POLLIN | POLLOUT, 0);
		recv(b->fd, &octet, 1, MSG_PEEK | MSG_DONTWAIT);
		NEED(close(dup(b->fd)) == 0);
		sleep_ms(1);
	}
	return NULL;
}

TCPS("together.both-ways-with-one-who-looks")
{
	struct ends e = ends_of(kind);
	struct both a = {e.a, {2, 0}, {3, 0}}, b = {e.b, {3, 0}, {2, 0}};
	pthread_t threads[6];

	NEED(pthread_create(&threads[0], NULL, look, &a) == 0 && pthread_create(&threads[1], NULL, look, &b) == 0);
	NEED(pthread_create(&threads[2], NULL, write_side, &a) == 0);
	NEED(pthread_create(&threads[3], NULL, write_side, &b) == 0);
	NEED(pthread_create(&threads[4], NULL, read_side, &a) == 0);
	NEED(pthread_create(&threads[5], NULL, read_side, &b) == 0);
	for (int i = 2; i < 6; i++)
		NEED(join_soon(threads[i], NULL));
	over = true;
	NEED(join_soon(threads[0], NULL) && join_soon(threads[1], NULL));
	EQ(a.in.at, b.out.at);
	EQ(b.in.at, a.out.at);
	ends_close(e);
}

/* --- copies of a descriptor */

TCPS("together.each-copy-reads-on-where-the-other-stopped")
{
	struct ends e = ends_of(kind);
	struct flow out = {4, 0}, in = out;
	int copies[5] = {e.b, dup(e.b), fcntl(e.b, F_DUPFD, 100), dup2(e.b, 200), dup3(e.b, 201, O_CLOEXEC)};

	for (int i = 0; i < 20; i++) {
		NEED(flow_send(&out, e.a, 100));
		/* Some is left for the next. */
		NEED(flow_recv(&in, copies[i % 5], i ? 100 : 63));
	}
	/* The one that began is closed, by number and by range; the others have it all. */
	EQ(close(e.b), 0);
	NEED(flow_recv(&in, copies[1], 7));
	EQ(close_range(200, 210, 0), 0);
	NEED(flow_recv(&in, copies[2], 7));
	EQ(dup2(copies[1], copies[2]), copies[2]);
	EQ(close(copies[1]), 0);
	NEED(flow_recv(&in, copies[2], 23));
	EQ(wait_for(copies[2], POLLIN, 0), 0);
	NEED(flow_send(&out, copies[2], 50));
	e.b = copies[2];
	in = (struct flow){4, out.at - 50};
	NEED(flow_recv(&in, e.a, 50));
	flow_both_ways(e);
	closefrom(copies[2]);
	FAILS(recv(e.b, &in, 1, 0), EBADF);
	EQ(recv(e.a, &in, 1, 0), 0);
	EQ(close(e.a), 0);
}

TCPS("together.each-copy-writes-on-where-the-other-stopped")
{
	struct ends e = tight_ends(kind);
	struct flow out = {5, 0}, in = out;
	int copy = dup(e.a);

	/* The one fills it, the other goes on with what is left of the room as it comes. */
	for (int i = 0; i < 4; i++) {
		flow_fill(&out, i % 2 ? copy : e.a);
		NEED(flow_recv(&in, e.b, (out.at - in.at) / 2));
	}
	EQ(close(e.a), 0);
	NEED(flow_recv(&in, e.b, out.at - in.at));
	NEED(flow_send(&out, copy, 100) && flow_recv(&in, e.b, 100));
	e.a = copy;
	flow_both_ways(e);
	ends_close(e);
}
