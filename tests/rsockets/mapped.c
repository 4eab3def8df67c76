/* Memory that one end maps and the other writes to. */
#include "env.h"

#include <sys/mman.h>
#include <time.h>

/* Two ends of which each lets the other map so many ranges. */
static struct ends mapping_ends(int ranges)
{
	struct ends e = {.listener = an_rsocket(AF_INET), .a = an_rsocket(AF_INET)};
	struct name n = loopback(AF_INET);

	NEED(rsetsockopt(e.listener, SOL_RDMA, RDMA_IOMAPSIZE, &ranges, sizeof(ranges)) == 0);
	NEED(rsetsockopt(e.a, SOL_RDMA, RDMA_IOMAPSIZE, &ranges, sizeof(ranges)) == 0);
	NEED(rbind(e.listener, &n.any, n.length) == 0 && rlisten(e.listener, 16) == 0);
	n = name_of(e.listener);
	NEED(rconnect(e.a, &n.any, n.length) == 0);
	e.b = raccept(e.listener, NULL, NULL);
	NEED(e.b >= 0);
	EQ(get_int(e.b, SOL_RDMA, RDMA_IOMAPSIZE), ranges);
	return e;
}

/* Maps memory at one end; the other knows of it once it has received a word. */
static void map(struct ends e, void *memory, size_t length, off_t offset)
{
	EQ(riomap(e.b, memory, length, PROT_WRITE, 0, offset), offset);
	talks(e.b, e.a);
}

/* Looks at memory alone, without a call on the socket. */
static bool comes(const volatile unsigned char *at, unsigned char octet)
{
	double end = deadline();

	while (*at != octet && now() < end)
		;
	return CHECKF(*at == octet, "it is %d", *at);
}

CASE("mapped.a-write-comes-without-a-call")
{
	struct ends e = mapping_ends(1);
	unsigned char memory[100] = "";

	map(e, memory, sizeof(memory), 0);
	for (unsigned char round = 1; round < 100; round++) {
		EQ(riowrite(e.a, &round, 1, round, 0), 1);
		comes(memory + round, round);
	}
	/* It is nothing to be received. */
	stays_quiet(e.b);
	FAILS(rrecv(e.b, memory, 1, MSG_DONTWAIT), EAGAIN);
	talks(e.a, e.b);
	talks(e.b, e.a);
	EQ(riounmap(e.b, memory, sizeof(memory)), 0);
	ends_close(e);
}

CASE("mapped.both-ends-map")
{
	struct ends e = mapping_ends(2);
	unsigned char memory[2][64] = {};

	for (int end = 0; end < 2; end++)
		EQ(riomap(end ? e.a : e.b, memory[end], 64, PROT_WRITE, 0, 1000 * end), 1000 * end);
	talks(e.a, e.b);
	talks(e.b, e.a);
	for (unsigned char round = 1; round < 200; round++) {
		EQ(riowrite(e.a, &round, 1, 63, 0), 1);
		comes(&memory[0][63], round);
		EQ(riowrite(e.b, &round, 1, 1000, 0), 1);
		comes(&memory[1][0], round);
	}
	ends_close(e);
}

CASE("mapped.octets-go-where-they-are-meant-to")
{
	enum { OCTETS = 3 << 20 };
	static unsigned char memory[OCTETS + 2], sent[OCTETS];
	struct ends e = mapping_ends(1);

	fill(sent, OCTETS, 5);
	map(e, memory + 1, OCTETS, 7);
	EQ(riowrite(e.a, sent, OCTETS, 7, 0), OCTETS);
	/* What is written comes before what is sent behind it. */
	talks(e.a, e.b);
	holds(memory + 1, OCTETS, 5);
	EQ(memory[0] + memory[OCTETS + 1], 0);
	ends_close(e);
}

CASE("mapped.nothing-is-written-beyond-the-end")
{
	struct ends e = mapping_ends(3);
	unsigned char memory[30] = "", sent[64];

	memset(sent, 1, sizeof(sent));
	EQ(riomap(e.b, memory, 10, PROT_WRITE, 0, 100), 100);
	map(e, memory + 20, 10, 200);
	EQ(riowrite(e.a, sent, 64, 105, 0), 5);
	EQ(riowrite(e.a, sent, 64, 110, 0), 0);
	EQ(riowrite(e.a, sent, 1, 99, 0), 0);
	EQ(riowrite(e.a, sent, 64, 209, 0), 1);
	EQ(riowrite(e.a, sent, 64, -1, 0), 0);
	EQ(riowrite(e.a, sent, 0, 100, 0), 0);
	talks(e.a, e.b);
	for (int i = 0; i < 30; i++)
		EQ(memory[i], (i >= 5 && i < 10) || i == 29);
	/* Ranges that follow each other are one to whoever writes. */
	EQ(riomap(e.b, memory + 10, 10, PROT_WRITE, 0, 110), 110);
	talks(e.b, e.a);
	EQ(riowrite(e.a, sent, 64, 100, 0), 20);
	ends_close(e);
}

CASE("mapped.an-offset-may-be-the-address")
{
	struct ends e = mapping_ends(1);
	unsigned char memory[8] = "";

	EQ(riomap(e.b, memory, 8, PROT_WRITE, 0, -1), (off_t)memory);
	talks(e.b, e.a);
	EQ(riowrite(e.a, "x", 1, (off_t)memory + 3, 0), 1);
	comes(memory + 3, 'x');
	ends_close(e);
}

CASE("mapped.a-peer-lets-so-many-ranges-be-mapped")
{
	struct ends e = mapping_ends(2), none = ends_of(AF_INET);
	unsigned char memory[40] = "";

	FAILS(riomap(none.a, memory, 8, PROT_WRITE, 0, 0), ENOMEM);
	map(e, memory, 8, 0);
	map(e, memory + 8, 8, 8);
	FAILS(riomap(e.b, memory + 16, 8, PROT_WRITE, 0, 16), ENOMEM);
	/* Memory that the peer is not told of takes nothing of that. */
	EQ(riomap(e.b, memory + 24, 8, PROT_NONE, 0, 24), 24);
	EQ(riounmap(e.b, memory + 24, 8), 0);
	EQ(riounmap(e.b, memory, 8), 0);
	map(e, memory + 16, 8, 16);
	EQ(riowrite(e.a, "12345678", 8, 16, 0), 8);
	comes(memory + 23, '8');
	EQ(memory[0], 0);
	ends_close(none);
	ends_close(e);
}

CASE("mapped.what-is-unmapped-is-written-to-no-more")
{
	struct ends e = mapping_ends(1);
	unsigned char memory[8] = "";

	map(e, memory, 8, 0);
	EQ(riounmap(e.b, memory, 8), 0);
	talks(e.b, e.a);
	EQ(riowrite(e.a, "x", 1, 0, 0), 0);
	/* And the connection goes on. */
	talks(e.a, e.b);
	EQ(memory[0], 0);
	ends_close(e);
}

CASE("mapped.what-cannot-be-mapped-is-refused")
{
	struct ends e = mapping_ends(1);
	unsigned char memory[8] = "";
	int fd = an_rsocket(AF_INET);

	FAILS(riomap(e.b, memory, 8, PROT_READ, 0, 0), EINVAL);
	FAILS(riomap(e.b, memory, 0, PROT_WRITE, 0, 0), EINVAL);
	FAILS(riomap(e.b, memory, (size_t)1 << 32, PROT_WRITE, 0, 0), EINVAL);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(pages != MAP_FAILED && mprotect(pages, page, PROT_READ | PROT_WRITE) == 0);
	FAILS(riomap(e.b, NULL, 8, PROT_WRITE, 0, 0), EFAULT);
	FAILS(riomap(e.b, pages + page - 4, 8, PROT_WRITE, 0, 0), EFAULT);
	EQ(munmap(pages, 2 * page), 0);
	FAILS(riomap(fd, memory, 8, PROT_WRITE, 0, 0), EINVAL);
	FAILS(riomap(e.listener, memory, 8, PROT_WRITE, 0, 0), EINVAL);
	FAILS(riowrite(fd, "x", 1, 0, 0), ENOTCONN);
	FAILS(riounmap(e.b, memory, 8), EINVAL);
	map(e, memory, 8, 0);
	FAILS(riounmap(e.b, memory, 7), EINVAL);
	FAILS(riounmap(e.b, memory + 1, 8), EINVAL);
	FAILS(riowrite(e.a, (void *)8, 1, 0, 0), EFAULT);
	EQ(riounmap(e.b, memory, 8), 0);
	EQ(rshutdown(e.b, SHUT_WR), 0);
	FAILS(riomap(e.b, memory, 8, PROT_WRITE, 0, 0), EPIPE);
	ends_close(e);
}

CASE("mapped.a-plain-client-has-no-mapped-memory")
{
	int listener = a_listener(AF_INET), plain = socket(AF_INET, SOCK_STREAM, 0);
	struct name n = name_of(listener);
	char octet = 0;

	NEED(connect(plain, &n.any, n.length) == 0);
	int accepted = raccept(listener, NULL, NULL);
	NEED(accepted >= 0);
	EQ(send(plain, "x", 1, 0), 1);
	EQ(rrecv(accepted, &octet, 1, 0), 1);
	FAILS(riomap(accepted, &octet, 1, PROT_WRITE, 0, 0), EOPNOTSUPP);
	FAILS(riowrite(accepted, &octet, 1, 0, 0), EOPNOTSUPP);
}

static void *accept_later(void *of)
{
	sleep_ms(QUIET);
	*(int *)of = raccept(*(int *)of, NULL, NULL);
	return NULL;
}

/* Only the peer's answer says how much may be mapped. */
CASE("mapped.a-map-waits-for-the-peers-accept")
{
	int listener = an_rsocket(AF_INET), fd = an_rsocket(AF_INET), ranges = 1;
	struct name n = loopback(AF_INET);
	unsigned char memory[8] = "";
	pthread_t thread;

	EQ(rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &ranges, sizeof(ranges)), 0);
	NEED(rbind(listener, &n.any, n.length) == 0 && rlisten(listener, 1) == 0);
	n = name_of(listener);
	set_nonblocking(fd, true);
	CHECK(rconnect(fd, &n.any, n.length) == 0 || errno == EINPROGRESS);
	int accepted = listener;
	NEED(pthread_create(&thread, NULL, accept_later, &accepted) == 0);
	EQ(riomap(fd, memory, 8, PROT_WRITE, 0, 0), 0);
	EQ(pthread_join(thread, NULL), 0);
	set_nonblocking(fd, false);
	talks(fd, accepted);
	EQ(riowrite(accepted, "x", 1, 5, 0), 1);
	comes(memory + 5, 'x');
}

/* A program that wants to be woken for many octets looks at its memory all the same. */
CASE("mapped.a-mark-for-octets-hides-no-write")
{
	struct ends e = mapping_ends(1);
	unsigned char memory[8] = "";
	int many = 1000;

	map(e, memory, sizeof(memory), 0);
	EQ(rsetsockopt(e.b, SOL_SOCKET, SO_RCVLOWAT, &many, sizeof(many)), 0);
	EQ(riowrite(e.a, "x", 1, 3, 0), 1);
	comes(memory + 3, 'x');
	EQ(rsend(e.a, "y", 1, 0), 1);
	EQ(wait_for(e.b, POLLIN, QUIET), 0);
	EQ(riowrite(e.a, "z", 1, 4, 0), 1);
	comes(memory + 4, 'z');
	ends_close(e);
}

CASE("mapped.a-full-socket-takes-no-more-and-then-more")
{
	static unsigned char memory[65536], sent[65536];
	struct ends e = mapping_ends(1);
	char octet = 0;
	size_t total = 0;

	map(e, memory, sizeof(memory), 0);
	EQ(rsend(e.a, "y", 1, 0), 1);
	for (int idle = 0; idle < 20;) {
		ssize_t wrote = (ssize_t)riowrite(e.a, sent, sizeof(sent), 0, MSG_DONTWAIT);
		if (wrote > 0) {
			total += (size_t)wrote;
			idle = 0;
			continue;
		}
		NEED(errno == EAGAIN);
		idle++;
		sleep_ms(5);
	}
	CHECKF(total > 65536, "it took %zu octets", total);
	EQ(rrecv(e.b, &octet, 1, 0), 1);
	EQ(octet, 'y');
	memset(sent, 3, sizeof(sent));
	EQ(riowrite(e.a, sent, sizeof(sent), 0, 0), sizeof(sent));
	comes(memory + sizeof(memory) - 1, 3);
	talks(e.a, e.b);
	ends_close(e);
}

/* What lies behind octets of the stream shows before those are received, and what the program makes of it stays. */
CASE("mapped.a-write-comes-past-octets-that-nobody-has-received")
{
	struct ends e = mapping_ends(1);
	unsigned char memory[8] = "";
	char octet = 0;

	map(e, memory, sizeof(memory), 0);
	EQ(rsend(e.a, "y", 1, 0), 1);
	for (unsigned char round = 1; round < 100; round++) {
		EQ(riowrite(e.a, &round, 1, 3, 0), 1);
		comes(memory + 3, round);
	}
	memory[3] = 'z';
	EQ(rrecv(e.b, &octet, 1, 0), 1);
	EQ(octet, 'y');
	talks(e.a, e.b);
	EQ(memory[3], 'z');
	ends_close(e);
}

static void *write_much(void *of)
{
	static unsigned char sent[65536];

	fill(sent, sizeof(sent), 9);
	for (int i = 0; i < 100; i++)
		EQ(riowrite(*(int *)of, sent, sizeof(sent), 0, 0), sizeof(sent));
	return NULL;
}

CASE("mapped.writes-go-beside-the-stream")
{
	enum { OCTETS = 4 << 20 };
	static unsigned char memory[65536], got[OCTETS], sent[OCTETS];
	struct ends e = mapping_ends(1);
	pthread_t writer;

	map(e, memory, sizeof(memory), 0);
	fill(sent, OCTETS, 3);
	NEED(pthread_create(&writer, NULL, write_much, &e.a) == 0);
	for (size_t done = 0; done < OCTETS; done += 65536) {
		if (!send_all(e.a, sent + done, 65536) || !recv_all(e.b, got + done, 65536))
			break;
	}
	EQ(pthread_join(writer, NULL), 0);
	talks(e.a, e.b);
	holds(got, OCTETS, 3);
	holds(memory, sizeof(memory), 9);
	ends_close(e);
}

/* A word of the stream tells of what was written; a look does not see past it. */
CASE("mapped.a-look-sees-the-stream-past-a-write")
{
	struct ends e = mapping_ends(1);
	unsigned char memory[8] = "";
	char octets[4] = "";

	map(e, memory, 8, 0);
	EQ(rsend(e.a, "lo", 2, 0), 2);
	EQ(riowrite(e.a, "x", 1, 0, 0), 1);
	EQ(rsend(e.a, "ok", 2, 0), 2);
	EQ(rrecv(e.b, octets, 4, MSG_PEEK | MSG_WAITALL), 4);
	SAME(octets, "look", 4);
	memset(octets, 0, 4);
	EQ(rrecv(e.b, octets, 4, MSG_WAITALL), 4);
	SAME(octets, "look", 4);
	comes(memory, 'x');
	ends_close(e);
}

/* Memory is its process's: a child that receives leaves what comes for it to the parent. */
static void receive_word(void *of)
{
	struct ends *e = of;
	unsigned char memory[8] = "";
	char word[6] = "";

	FAILS(riomap(e->b, memory, 8, PROT_WRITE, 0, 100), EBUSY);
	EQ(rrecv(e->b, word, 6, MSG_WAITALL), 6);
	SAME(word, "hello", 6);
}

CASE("mapped.a-child-has-the-stream-and-the-parent-the-memory")
{
	struct ends e = mapping_ends(2);
	unsigned char *memory = calloc(1, 8);

	NEED(memory);
	map(e, memory, 8, 0);
	pid_t child = start_child(receive_word, &e);
	for (unsigned char round = 1; round < 50; round++) {
		EQ(riowrite(e.a, &round, 1, 0, 0), 1);
		comes(memory, round);
	}
	EQ(rsend(e.a, "hello", 6, 0), 6);
	child_ended_well(child);
	EQ(riowrite(e.a, "x", 1, 0, 0), 1);
	comes(memory, 'x');
	talks(e.a, e.b);
	ends_close(e);
}

static double processor_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void map_and_stop(void *of)
{
	static unsigned char memory[8];

	EQ(riomap(((struct ends *)of)->b, memory, 8, PROT_WRITE, 0, 0), 0);
	raise(SIGSTOP);
}

/* A process that runs no longer takes nothing for its memory, and others wait for that as they do for octets. */
CASE("mapped.who-waits-behind-another-processs-write-uses-no-processor")
{
	struct ends e = mapping_ends(1);
	struct timeval time = {0, 400000};
	int status;
	char octet;

	need_calm();
	pid_t child = start_child(map_and_stop, &e);
	NEED(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	double begun = now();
	while (riowrite(e.a, "x", 1, 0, 0) != 1 && now() < begun + patience / 1000.0)
		sleep_ms(1);
	EQ(rsetsockopt(e.b, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)), 0);
	double used = processor_time();
	FAILS(rrecv(e.b, &octet, 1, 0), EAGAIN);
	used = processor_time() - used;
	CHECKF(used < 0.2, "it used %.3f s of 0.4 s", used);
	EQ(kill(child, SIGCONT), 0);
	child_ended_well(child);
	ends_close(e);
}

static void write_once(void *of)
{
	EQ(riowrite(((struct ends *)of)->a, "x", 1, 7, 0), 1);
}

CASE("mapped.a-child-writes-where-its-parent-may")
{
	struct ends e = mapping_ends(1);
	unsigned char memory[8] = "";

	map(e, memory, 8, 0);
	child_ended_well(start_child(write_once, &e));
	comes(memory + 7, 'x');
	ends_close(e);
}

CASE("mapped.memory-that-went-away-ends-the-connection")
{
	struct ends e = mapping_ends(1);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char octet;

	NEED(memory != MAP_FAILED);
	map(e, memory, page, 0);
	EQ(munmap(memory, page), 0);
	EQ(riowrite(e.a, "x", 1, 0, 0), 1);
	CHECK(wait_for(e.b, POLLIN, patience) & (POLLIN | POLLHUP | POLLERR));
	FAILS(rrecv(e.b, &octet, 1, 0), ECONNRESET);
	FAILS(rrecv(e.a, &octet, 1, 0), ECONNRESET);
}

CASE("mapped.a-close-gives-memory-back")
{
	enum { ROUNDS = 50 };
	unsigned char memory[64] = "";

	for (int i = 0; i < ROUNDS; i++) {
		struct ends e = mapping_ends(1);
		map(e, memory, sizeof(memory), 0);
		EQ(riowrite(e.a, "x", 1, (off_t)i, 0), 1);
		comes(memory + i, 'x');
		ends_close(e);
	}
}

static void *receives_one(void *of)
{
	char octet;

	rrecv(*(int *)of, &octet, 1, 0);
	return NULL;
}

/* A call that waits goes on with the connection, and the memory is the program's again all the same. */
CASE("mapped.a-close-gives-memory-back-while-a-call-waits")
{
	struct ends e = mapping_ends(1);
	volatile unsigned char memory[8] = "";
	pthread_t reader;

	map(e, (void *)memory, sizeof(memory), 0);
	NEED(pthread_create(&reader, NULL, receives_one, &e.b) == 0);
	sleep_ms(QUIET);
	EQ(rclose(e.b), 0);
	EQ(riowrite(e.a, "x", 1, 3, 0), 1);
	sleep_ms(QUIET);
	EQ(memory[3], 0);
	/* What is no octet of the stream is thrown away, and the call goes on. */
	EQ(rsend(e.a, "y", 1, 0), 1);
	NEED(pthread_join(reader, NULL) == 0);
	EQ(memory[3], 0);
	EQ(rclose(e.a), 0);
}

/* Sends until nothing goes any more; gives how many octets. */
static size_t sends_until_full(int fd)
{
	static const char octets[1 << 20];
	size_t sent = 0;

	for (int idle = 0; idle < 10;) {
		ssize_t now_sent = rsend(fd, octets, sizeof(octets), MSG_DONTWAIT);
		if (now_sent > 0) {
			sent += (size_t)now_sent;
			idle = 0;
		} else {
			idle++;
			sleep_ms(2);
		}
	}
	return sent;
}

/* The peer is told behind what a full socket has left. */
CASE("mapped.a-full-socket-does-not-keep-an-unmap-from-the-peer")
{
	static char room[1 << 16];
	struct ends e = mapping_ends(1);
	unsigned char memory[8] = "";

	map(e, memory, sizeof(memory), 0);
	size_t left = sends_until_full(e.b);
	EQ(riounmap(e.b, memory, sizeof(memory)), 0);
	while (left > 0) {
		ssize_t got = rrecv(e.a, room, left < sizeof(room) ? left : sizeof(room), 0);
		NEED(got > 0);
		left -= (size_t)got;
	}
	talks(e.b, e.a);
	EQ(riowrite(e.a, "x", 1, 3, 0), 0);
	talks(e.a, e.b);
	EQ(memory[3], 0);
	ends_close(e);
}

/* A peer that writes to mapped memory cannot know of the close, and has all that was sent before. */
CASE("mapped.a-write-after-the-close-costs-nothing-that-was-sent")
{
	static char room[1 << 16];
	struct ends e = mapping_ends(1);
	unsigned char memory[8] = "";
	size_t got = 0;
	ssize_t now_got;

	map(e, memory, sizeof(memory), 0);
	size_t sent = sends_until_full(e.b);
	EQ(rclose(e.b), 0);
	EQ(riowrite(e.a, "x", 1, 3, 0), 1);
	sleep_ms(QUIET);
	while (got < sent && (now_got = rrecv(e.a, room, sizeof(room), 0)) > 0) {
		got += (size_t)now_got;
		/* It fails once everything is here and the other end is gone. */
		riowrite(e.a, "x", 1, 3, 0);
	}
	EQ(got, sent);
	EQ(memory[3], 0);
	EQ(rclose(e.a), 0);
}

CASE("mapped.an-end-of-a-duplicate-leaves-memory-mapped")
{
	struct ends e = mapping_ends(1);
	unsigned char memory[8] = "";

	need_ordinary_calls();
	map(e, memory, 8, 0);
	int other = dup(e.b);
	NEED(other >= 0);
	EQ(rclose(e.b), 0);
	EQ(riowrite(e.a, "x", 1, 3, 0), 1);
	comes(memory + 3, 'x');
	talks(e.a, other);
	EQ(rclose(other), 0);
}
