/* Random traffic over many TCP connections of one program, every octet checked by its place in the stream.
 *
 *     streams --seed N [--connections N] [--workers N] [--forks] [--kills] [--no-resets]
 *
 * Workers make connections to themselves, one after the other. Each connection has four halves (a sender and a receiver
 * at either end), which are dealt out to threads; a thread with several halves never waits in a call. With --forks a
 * thread leaves its halves to a forked child for a while, or for good; with --kills such a child is killed in the
 * middle of whatever it does. Ends with a line of counts; whatever is wrong ends it with the seed and the place. */
#include "streams.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../abi/include/weft/sockets.h"

enum { HALVES = 4, WORKERS_MAX = 16, FD_MAX = 256, DEPTH_MAX = 2, STALL_SECONDS = 20 };

/* The halves that one thread moves on, in memory that its children share. */
struct set {
	uint64_t random;
	int count;
	struct half *halves[HALVES];
	bool owns_end; /* both halves of an end, whose descriptor nobody else uses */
	bool is_alone; /* no other thread uses a descriptor of these halves */
	unsigned stop_in; /* steps until it closes that end, whatever is under way; 0 for never */
};

struct shared {
	uint64_t steps, octets;
	unsigned connections, over_ddp, forks, kills, cut, resets;
	struct connection connection[WORKERS_MAX];
	struct half half[WORKERS_MAX][HALVES];
	struct set set[WORKERS_MAX][HALVES];
};

static struct shared *shared;
static unsigned long long seed = 1;
static unsigned connections = 40, workers = 4;
static bool forks, kills, resets = true;
/* Octets of the smallest buffers. */
static int least_buffer = 4096;

#define COUNT(what, more) __atomic_fetch_add(&shared->what, (more), __ATOMIC_RELAXED)

static _Noreturn void end_all(int status)
{
	fflush(NULL);
	/* Children, and threads that wait for them. */
	if (status)
		kill(0, SIGKILL);
	_exit(status);
}

_Noreturn void wrong(const struct half *h, const char *what, ...)
{
	char text[600];
	va_list arguments;

	va_start(arguments, what);
	vsnprintf(text, sizeof(text), what, arguments);
	va_end(arguments);
	if (h)
		fprintf(stderr, "WRONG seed %llu, connection %d, flow %u, a %s at octet %llu of %llu, in %s: %s\n", seed,
			h->connection->number, h->flow, h->sends ? "sender" : "receiver", (unsigned long long)h->at,
			(unsigned long long)h->total, h->call ? h->call : "nothing", text);
	else
		fprintf(stderr, "WRONG seed %llu: %s\n", seed, text);
	end_all(1);
}

#define NEED(good, what)                                                                                               \
	do {                                                                                                           \
		if (!(good))                                                                                           \
			wrong(NULL, "%s: %s", (what), strerror(errno));                                                \
	} while (0)

/* --- waiting */

static void wait_by_poll(const struct set *s)
{
	struct pollfd wanted[HALVES];
	int count = 0;

	for (int i = 0; i < s->count; i++)
		if (!s->halves[i]->is_over)
			wanted[count++] = (struct pollfd){s->halves[i]->fd, s->halves[i]->sends ? POLLOUT : POLLIN, 0};
	NEED(poll(wanted, (nfds_t)count, -1) > 0 || errno == EINTR, "poll");
}

static void wait_by_select(const struct set *s)
{
	fd_set in, out;
	int most = 0;

	FD_ZERO(&in);
	FD_ZERO(&out);
	for (int i = 0; i < s->count; i++) {
		const struct half *h = s->halves[i];
		if (h->is_over)
			continue;
		FD_SET(h->fd, h->sends ? &out : &in);
		most = h->fd > most ? h->fd : most;
	}
	NEED(select(most + 1, &in, &out, NULL, NULL) > 0 || errno == EINTR, "select");
}

/* By an epoll, which is there as long as one process is at it; `edges` counts on all having said that they wait. */
static void wait_by_epoll(const struct set *s, int *epoll, bool edges)
{
	struct epoll_event event;

	if (*epoll >= 0 && edges) {
		NEED(epoll_wait(*epoll, &event, 1, -1) > 0 || errno == EINTR, "epoll_wait");
		return;
	}
	if (*epoll >= 0)
		close(*epoll);
	NEED((*epoll = epoll_create1(EPOLL_CLOEXEC)) >= 0, "epoll_create1");
	for (int i = 0; i < s->count; i++) {
		const struct half *h = s->halves[i];
		if (h->is_over)
			continue;
		event = (struct epoll_event){(h->sends ? EPOLLOUT : EPOLLIN) | (edges ? EPOLLET : 0), {.fd = h->fd}};
		if (epoll_ctl(*epoll, EPOLL_CTL_ADD, h->fd, &event) == 0)
			continue;
		/* Both halves have the number. */
		NEED(errno == EEXIST, "epoll_ctl");
		event.events |= EPOLLIN | EPOLLOUT;
		NEED(epoll_ctl(*epoll, EPOLL_CTL_MOD, h->fd, &event) == 0, "epoll_ctl");
	}
	NEED(epoll_wait(*epoll, &event, 1, -1) > 0 || errno == EINTR, "epoll_wait");
}

static void wait_for(const struct set *s, int way, int *epoll)
{
	switch (way) {
	case 0: return wait_by_poll(s);
	case 1: return wait_by_select(s);
	default: return wait_by_epoll(s, epoll, way == 3);
	}
}

/* --- moving on */

static bool is_over(const struct set *s)
{
	for (int i = 0; i < s->count; i++)
		if (!s->halves[i]->is_over)
			return false;
	return true;
}

static bool is_in(const struct set *s, int fd)
{
	for (int i = 0; i < s->count; i++)
		if (s->halves[i]->fd == fd)
			return true;
	return false;
}

/* Closes what the process has of other connections, as a child does that is to have one only. */
static void close_others(struct set *s)
{
	if (one_in(&s->random, 2)) {
		for (int fd = 3; fd < FD_MAX; fd++)
			if (!is_in(s, fd))
				close(fd);
		return;
	}
	for (int fd = 3, first = 3; fd <= FD_MAX; fd++)
		if (fd == FD_MAX || is_in(s, fd)) {
			if (first < fd)
				close_range((unsigned)first, (unsigned)fd - 1, 0);
			first = fd + 1;
		}
}

static void fork_in(struct set *s, int depth);

/* Moves on for so many steps, or until all is over. */
static void move(struct set *s, uint64_t steps, int depth)
{
	int way = (int)(next_random(&s->random) % (s->is_alone ? 4 : 3)), epoll = -1, waiting = 0;

	for (uint64_t step = 0; step < steps && !is_over(s); step++) {
		struct half *h = s->halves[step % (unsigned)s->count];
		if (s->stop_in && --s->stop_in == 0)
			break;
		enum step came = half_step(h, &s->random);
		COUNT(steps, 1);
		waiting = came == MOVED ? 0 : waiting + 1;
		if (waiting >= s->count && !is_over(s)) {
			wait_for(s, way, &epoll);
			waiting = 0;
		}
		if (forks && depth < DEPTH_MAX && one_in(&s->random, 60)) {
			/* Edges are told of once, to whichever process asks first. */
			if (epoll >= 0)
				close(epoll);
			epoll = -1;
			fork_in(s, depth + 1);
			waiting = 0;
		}
	}
	if (epoll >= 0)
		close(epoll);
}

/* A child goes on with the halves, for a while or to the end, or until it is killed. */
static void fork_in(struct set *s, int depth)
{
	bool is_killed = kills && one_in(&s->random, 2);
	bool to_the_end = one_in(&s->random, 4), closes = one_in(&s->random, 2), leaves = one_in(&s->random, 2);
	useconds_t until = (useconds_t)below(&s->random, 8000);
	uint64_t steps = to_the_end ? UINT64_MAX : below(&s->random, 200);
	pid_t parent = getpid(), child;
	int status;

	COUNT(forks, 1);
	NEED((child = fork()) >= 0, "fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		/* An end that is closed to be reset is closed once nobody has it. */
		if (closes || s->halves[0]->connection->may_be_reset)
			close_others(s);
		/* What a child of one that is killed does meanwhile nobody could tell. */
		move(s, steps, is_killed ? DEPTH_MAX : depth);
		if (leaves)
			for (int i = 0; i < s->count; i++)
				close(s->halves[i]->fd);
		if (one_in(&s->random, 2))
			_exit(0);
		exit(0);
	}
	if (is_killed) {
		usleep(until);
		/* The other end may hear of it before this thread goes on. */
		s->halves[0]->connection->was_killed_in = true;
		kill(child, SIGKILL);
	}
	NEED(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)) == child, "waitpid");
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && is_killed) {
		COUNT(kills, 1);
		for (int i = 0; i < s->count; i++)
			half_was_killed(s->halves[i]);
	} else if (status) {
		wrong(s->halves[0], "a child ended with status %#x", status);
	}
}

/* Closes an end, and takes note of what it was. */
static void close_end(int fd)
{
	struct weft_ddp status = {0};
	socklen_t length = sizeof(status);

	if (getsockopt(fd, SOL_WEFT, WEFT_SO_DDP, &status, &length) == 0 && status.state == WEFT_DDP_STATE_DDP)
		COUNT(over_ddp, 1);
	NEED(close(fd) == 0, "close");
}

static void *run_set(void *of)
{
	struct set *s = of;

	move(s, UINT64_MAX, 0);
	if (!s->owns_end)
		return NULL;
	int fd = s->halves[0]->fd;
	if (!is_over(s)) {
		struct linger linger = {1, 0};
		NEED(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0, "SO_LINGER");
		COUNT(resets, 1);
	}
	close_end(fd);
	return NULL;
}

/* --- connections */

struct pair {
	int fd[2];
};

static void set_sizes(int fd, uint64_t *random)
{
	if (one_in(random, 3)) {
		int size = least_buffer << next_random(random) % 5;
		NEED(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) == 0, "SO_RCVBUF");
	}
	if (one_in(random, 3)) {
		int size = least_buffer << next_random(random) % 5;
		NEED(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0, "SO_SNDBUF");
	}
}

static struct pair connect_pair(uint64_t *random)
{
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} at = {0};
	socklen_t length = sizeof(at);
	bool six = one_in(random, 3), waits = one_in(random, 2);
	int family = six ? AF_INET6 : AF_INET, listener = socket(family, SOCK_STREAM, 0), one = 1;
	struct pair pair;

	if (six)
		at.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	else
		at.in = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	NEED(listener >= 0, "socket");
	set_sizes(listener, random);
	NEED(bind(listener, &at.any, six ? sizeof(at.in6) : sizeof(at.in)) == 0 && listen(listener, 1) == 0, "listen");
	NEED(getsockname(listener, &at.any, &length) == 0, "getsockname");
	NEED((pair.fd[0] = socket(family, SOCK_STREAM | (waits ? 0 : SOCK_NONBLOCK), 0)) >= 0, "socket");
	set_sizes(pair.fd[0], random);
	if (connect(pair.fd[0], &at.any, length)) {
		struct pollfd out = {pair.fd[0], POLLOUT, 0};
		NEED(errno == EINPROGRESS && TEMP_FAILURE_RETRY(poll(&out, 1, -1)) == 1, "connect");
	}
	NEED((pair.fd[1] = accept(listener, NULL, NULL)) >= 0, "accept");
	NEED(close(listener) == 0, "close");
	for (int end = 0; end < 2; end++) {
		/* As it was connected, or as seeds have it. */
		bool blocks = end == 0 ? (waits ? true : one_in(random, 2)) : one_in(random, 2);
		NEED(fcntl(pair.fd[end], F_SETFL, blocks ? 0 : O_NONBLOCK) == 0, "O_NONBLOCK");
		if (one_in(random, 3))
			setsockopt(pair.fd[end], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
	return pair;
}

/* Deals four halves out to threads, one to four of them; which are whose, seeds decide. */
static int deal(struct set *sets, struct half *halves, uint64_t *random)
{
	static const int ways[][HALVES] = {{0, 1, 2, 3}, {0, 1, 2, 2}, {0, 0, 1, 1}, {0, 1, 1, 0},
					   {0, 0, 0, 0}, {0, 0, 1, 2}, {0, 0, 1, 1}, {0, 1, 0, 1}};
	const int *way = ways[next_random(random) % 8];
	int count = 0;

	for (int i = 0; i < HALVES; i++) {
		struct set *s = &sets[way[i]];
		if (way[i] == count) {
			*s = (struct set){.random = next_random(random)};
			count++;
		}
		s->halves[s->count++] = &halves[i];
	}
	for (int i = 0; i < count; i++) {
		struct set *s = &sets[i];
		for (int j = 0; j < s->count; j++)
			s->halves[j]->never_waits = s->count > 1;
		s->owns_end = s->count == 2 && s->halves[0]->fd == s->halves[1]->fd;
		s->is_alone = s->owns_end || s->count == HALVES;
	}
	return count;
}

static void run_connection(int worker, int number, uint64_t *random)
{
	struct connection *connection = &shared->connection[worker];
	struct half *halves = shared->half[worker];
	struct set *sets = shared->set[worker];
	struct pair pair = connect_pair(random);
	pthread_t threads[HALVES];

	*connection = (struct connection){.number = number};
	for (int i = 0; i < HALVES; i++) {
		int end = i / 2, other = i ^ 3;
		bool blocks = !(fcntl(pair.fd[end], F_GETFL) & O_NONBLOCK);
		halves[i] = (struct half){.connection = connection, .fd = pair.fd[end], .sends = i % 2 == 0, .blocks = blocks,
					  .peer = &halves[other], .flow = (unsigned)(number * 2 + (i == 0 || i == 3))};
	}
	for (int way = 0; way < 2; way++) {
		struct half *from = &halves[2 * way];
		from->total = from->peer->total = one_in(random, 8) ? 0 : below(random, 2 << 20);
		/* Who looks for its place in a stream may have to come to its end. */
		from->ends = from->peer->ends = kills || !one_in(random, 4);
	}
	int count_of_sets = deal(sets, halves, random);
	for (int i = 0; i < count_of_sets; i++)
		if (resets && sets[i].owns_end && !connection->may_be_reset && one_in(random, 8)) {
			connection->may_be_reset = true;
			sets[i].stop_in = 1 + (unsigned)below(random, 300);
		}
	for (int i = 0; i < count_of_sets; i++)
		NEED(pthread_create(&threads[i], NULL, run_set, &sets[i]) == 0, "pthread_create");
	for (int i = 0; i < count_of_sets; i++)
		pthread_join(threads[i], NULL);
	bool is_closed[2] = {false, false};
	for (int i = 0; i < count_of_sets; i++)
		if (sets[i].owns_end)
			is_closed[sets[i].halves[0] - halves >= 2] = true;
	for (int end = 0; end < 2; end++)
		if (!is_closed[end])
			close_end(pair.fd[end]);
	for (int i = 0; i < HALVES; i++)
		if (!halves[i].sends)
			COUNT(octets, halves[i].at);
	COUNT(connections, 1);
	COUNT(cut, connection->is_cut && !connection->may_be_reset);
}

/* --- the whole */

static void *work(void *of)
{
	int worker = (int)(intptr_t)of;
	uint64_t random = seed * 1000 + (unsigned)worker;

	for (unsigned i = 0; i < connections; i++)
		run_connection(worker, (int)(i * workers) + worker, &random);
	return NULL;
}

static void say_where_all_are(void)
{
	for (unsigned worker = 0; worker < workers; worker++)
		for (int i = 0; i < HALVES; i++) {
			const struct half *h = &shared->half[worker][i];
			if (h->connection)
				fprintf(stderr, "  connection %d, flow %u, %s at %llu of %llu%s, in %s\n",
					h->connection->number, h->flow, h->sends ? "sender" : "receiver",
					(unsigned long long)h->at, (unsigned long long)h->total,
					h->is_over ? ", over" : "", h->call ? h->call : "nothing");
		}
}

/* A program in which nothing moves for long hangs. */
static void *watch(void *unused)
{
	uint64_t before = 0;

	for (int still = 0; still < STALL_SECONDS; sleep(1)) {
		uint64_t now = __atomic_load_n(&shared->steps, __ATOMIC_RELAXED);
		still = now == before ? still + 1 : 0;
		before = now;
	}
	fprintf(stderr, "WRONG seed %llu: nothing moves\n", seed);
	say_where_all_are();
	end_all(1);
	return unused;
}

static int open_numbers(void)
{
	int count = 0;

	for (int fd = 0; fd < 4096; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* Pages of the memory by which Weft shares connections among processes; -1 where there is none. */
static long pages_of_weft(void)
{
	char link[64], target[256];

	for (int fd = 3; fd < 4096; fd++) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		ssize_t length = readlink(link, target, sizeof(target) - 1);
		struct stat stat;
		if (length > 0 && (target[length] = 0, strstr(target, "memfd:weft-streams")) && fstat(fd, &stat) == 0)
			return (long)(stat.st_blocks / 8);
	}
	return -1;
}

static unsigned long long number_of(const char *text)
{
	char *end;
	unsigned long long number = strtoull(text, &end, 10);

	if (*end || end == text) {
		fprintf(stderr, "streams: no number: %s\n", text);
		exit(2);
	}
	return number;
}

static void read_options(int argc, char **argv)
{
	static const struct option longs[] = {{"seed", required_argument, NULL, 's'},
					      {"connections", required_argument, NULL, 'c'},
					      {"workers", required_argument, NULL, 'w'},
					      {"least-buffer", required_argument, NULL, 'b'},
					      {"forks", no_argument, NULL, 'f'},
					      {"kills", no_argument, NULL, 'k'},
					      {"no-resets", no_argument, NULL, 'r'},
					      {0}};

	for (int letter; (letter = getopt_long(argc, argv, "", longs, NULL)) != -1;)
		switch (letter) {
		case 's': seed = number_of(optarg); break;
		case 'c': connections = (unsigned)number_of(optarg); break;
		case 'w': workers = (unsigned)number_of(optarg); break;
		case 'b': least_buffer = (int)number_of(optarg); break;
		case 'f': forks = true; break;
		case 'k': forks = kills = true; break;
		case 'r': resets = false; break;
		default: exit(2);
		}
	if (workers < 1 || workers > WORKERS_MAX)
		exit(2);
}

int main(int argc, char **argv)
{
	pthread_t threads[WORKERS_MAX], watcher;

	read_options(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(shared != MAP_FAILED, "mmap");
	NEED(pthread_create(&watcher, NULL, watch, NULL) == 0, "pthread_create");
	/* What stands between this and the kernel may keep descriptors of its own from the first connection on. */
	uint64_t random = seed;
	bool later = forks;
	forks = false;
	run_connection(0, 1 << 20, &random);
	forks = later;
	int before = open_numbers();
	for (unsigned i = 0; i < workers; i++)
		NEED(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i) == 0, "pthread_create");
	for (unsigned i = 0; i < workers; i++)
		pthread_join(threads[i], NULL);
	/* What a closed connection has under way may take a while. */
	int left = open_numbers() - before;
	for (int tries = 0; left > 0 && tries < 1000; tries++, left = open_numbers() - before)
		usleep(10000);
	if (left > 0)
		wrong(NULL, "%d descriptors are left", left);
	printf("connections %u, ends over DDP %u, octets %llu, steps %llu, forks %u, kills %u, cut %u, resets %u, pages %ld\n",
	       shared->connections, shared->over_ddp, (unsigned long long)shared->octets,
	       (unsigned long long)shared->steps, shared->forks, shared->kills, shared->cut, shared->resets,
	       pages_of_weft());
	end_all(0);
}
