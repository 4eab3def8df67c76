/* Connections that another program goes on with: this one, started anew by exec with what is open. */
#include "inherited.h"

#include "flow.h"
#include "ready.h"

#include <spawn.h>

/* --- the program that is started: DOES FD SEED AT LENGTH */

static bool read_on(int fd, struct flow f, size_t length)
{
	return flow_recv(&f, fd, length);
}

static bool write_on(int fd, struct flow f, size_t length)
{
	return flow_send(&f, fd, length);
}

/* By epoll and edges, and only what is told of. */
static bool read_by_edges(int fd, struct flow f, size_t length)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	int set = epoll_create1(0);
	size_t end = f.at + length;
	char octets[777];

	if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0)
		return false;
	while (f.at < end) {
		if (epoll_wait(set, &event, 1, patience) != 1)
			return false;
		ssize_t got;
		while (f.at < end && (got = recv(fd, octets, end - f.at < 777 ? end - f.at : 777, MSG_DONTWAIT)) > 0)
			if (!flow_is(&f, octets, (size_t)got))
				return false;
	}
	return true;
}

static bool count_what_is_there(int fd, struct flow f, size_t length)
{
	int there = -1;

	(void)f;
	return ioctl(fd, FIONREAD, &there) == 0 && (size_t)there == length &&
	       wait_for(fd, POLLIN, 0) == (length ? POLLIN : 0);
}

static bool echo(int fd, struct flow f, size_t length)
{
	char octets[3000];
	ssize_t got;

	(void)f;
	(void)length;
	while ((got = recv(fd, octets, sizeof(octets), 0)) > 0)
		if (!send_all(fd, octets, (size_t)got))
			return false;
	return got == 0;
}

static bool accept_and_echo(int fd, struct flow f, size_t length)
{
	int end = accept(fd, NULL, NULL);

	return end >= 0 && echo(end, f, length);
}

/* No descriptor is open by which the state of connections could be read, nor in what this program starts. */
static bool has_no_state(int fd, struct flow f, size_t length)
{
	char path[32], file[64] = "";

	(void)fd;
	(void)f;
	(void)length;
	for (int number = 0; number < 2048; number++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", number);
		ssize_t got = readlink(path, file, sizeof(file) - 1);
		if (got > 0 && memmem(file, (size_t)got, "weft-streams", 12))
			return false;
	}
	return true;
}

static bool starts_one_that_has_no_state(int fd, struct flow f, size_t length)
{
	char *argv[] = {"sockets-conformance", "--inherited", "nothing", "0", "0", "0", "0", NULL};

	(void)fd;
	(void)f;
	(void)length;
	unsetenv("LD_PRELOAD");
	execv("/proc/self/exe", argv);
	return false;
}

static const struct {
	const char *name;
	bool (*run)(int fd, struct flow f, size_t length);
} doings[] = {{"read", read_on}, {"write", write_on}, {"edges", read_by_edges}, {"count", count_what_is_there},
	      {"echo", echo},	 {"accept", accept_and_echo},
	      {"nothing", has_no_state}, {"through", starts_one_that_has_no_state}};

int inherited_main(int argc, char **argv)
{
	if (argc != 7)
		return 2;
	struct flow f = {(unsigned)atoi(argv[4]), (uint64_t)atoll(argv[5])};
	for (size_t i = 0; i < sizeof(doings) / sizeof(*doings); i++)
		if (strcmp(argv[2], doings[i].name) == 0)
			return doings[i].run(atoi(argv[3]), f, (size_t)atoll(argv[6])) ? 0 : 1;
	return 2;
}

/* --- starting it */

struct words {
	char text[4][24];
	char *argv[8];
};

static void words_of(struct words *w, const char *does, int fd, struct flow f, size_t length)
{
	snprintf(w->text[0], sizeof(w->text[0]), "%d", fd);
	snprintf(w->text[1], sizeof(w->text[1]), "%u", f.seed);
	snprintf(w->text[2], sizeof(w->text[2]), "%llu", (unsigned long long)f.at);
	snprintf(w->text[3], sizeof(w->text[3]), "%zu", length);
	char *argv[8] = {"sockets-conformance", "--inherited", (char *)does, w->text[0],
			 w->text[1],		w->text[2],    w->text[3],	 NULL};
	memcpy(w->argv, argv, sizeof(argv));
}

enum starting { BY_FORK, BY_VFORK, BY_SPAWN, STARTINGS };
static const char *const starting_names[] = {"fork", "vfork", "spawn"};
static const char program[] = "/proc/self/exe";

static pid_t start(enum starting how, const char *does, int fd, struct flow f, size_t length)
{
	struct words w;
	pid_t child;

	words_of(&w, does, fd, f, length);
	switch (how) {
	case BY_FORK:
		child = fork();
		if (child == 0) {
			execv(program, w.argv);
			_exit(127);
		}
		break;
	case BY_VFORK:
		child = vfork();
		if (child == 0) {
			execv(program, w.argv);
			_exit(127);
		}
		break;
	default: EQ(posix_spawn(&child, program, NULL, NULL, w.argv, environ), 0);
	}
	NEED(child > 0);
	return child;
}

/* --- the cases: each by fork, vfork and spawn */

static void reads_on(long kind, enum starting how, const char *does)
{
	struct ends e = ends_of(kind);
	struct flow out = {1, 0}, in = out;

	NEED(flow_send(&out, e.a, 400) && flow_send(&out, e.a, 600));
	NEED(octets_come(e.b, 1000) && flow_recv(&in, e.b, 123));
	CHECK(child_ended_well(start(how, "count", e.b, in, 877)));
	CHECK(child_ended_well(start(how, does, e.b, in, 300)));
	in.at += 300;
	CHECK(child_ended_well(start(how, "count", e.b, in, 577)));
	NEED(flow_recv(&in, e.b, 577));
	CHECK(child_ended_well(start(how, "count", e.b, in, 0)));
	flow_both_ways(e);
	ends_close(e);
}

static void reads(long all)
{
	reads_on(all % 2 ? TCP6 : TCP4, (enum starting)(all / 2), "read");
}

static void reads_edges(long all)
{
	reads_on(all % 2 ? TCP6 : TCP4, (enum starting)(all / 2), "edges");
}

static void writes_between(long all)
{
	struct ends e = ends_of(all % 2 ? TCP6 : TCP4);
	struct flow out = {2, 0}, in = out;

	for (int i = 0; i < 2; i++) {
		NEED(flow_send(&out, e.a, 500));
		CHECK(child_ended_well(start((enum starting)(all / 2), "write", e.a, out, 3000)));
		out.at += 3000;
	}
	NEED(flow_send(&out, e.a, 500));
	NEED(flow_recv(&in, e.b, out.at));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	ends_close(e);
}

static void serves(long all)
{
	struct ends e = ends_of(all % 2 ? TCP6 : TCP4);
	struct flow out = {3, 0}, in = out;

	NEED(fcntl(e.a, F_SETFD, FD_CLOEXEC) == 0);
	pid_t child = start((enum starting)(all / 2), "echo", e.b, out, 0);
	EQ(close(e.b), 0);
	for (unsigned seed = 3; out.at < 40000;) {
		NEED(flow_send(&out, e.a, 1 + any_below(&seed, 3000)));
		NEED(flow_recv(&in, e.a, out.at - in.at));
	}
	EQ(shutdown(e.a, SHUT_WR), 0);
	CHECK(flow_recv_to_the_end(&in, e.a));
	CHECK(child_ended_well(child));
	EQ(close(e.a), 0);
}

static void accepts(long all)
{
	long kind = all % 2 ? TCP6 : TCP4;
	int listener = a_listener(kind, 4), fd = socket(kind_family((enum kind)kind), SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct name name = name_of(listener);
	struct flow out = {4, 0}, in = out;

	NEED(fd >= 0 && connect(fd, &name.any, name.length) == 0);
	/* Sent to nobody yet. */
	NEED(flow_send(&out, fd, 1000));
	pid_t child = start((enum starting)(all / 2), "accept", listener, out, 0);
	EQ(close(listener), 0);
	NEED(flow_recv(&in, fd, 1000));
	EQ(shutdown(fd, SHUT_WR), 0);
	CHECK(flow_recv_to_the_end(&in, fd));
	CHECK(child_ended_well(child));
	EQ(close(fd), 0);
}

CASES
{
	for (long i = 0; i < 2 * STARTINGS; i++) {
		const char *name = starting_names[i / 2];
		int version = i % 2 ? 6 : 4;
		ADD(reads, i, "tcp%d.inherited.by-%s-it-reads-on", version, name);
		ADD(reads_edges, i, "tcp%d.inherited.by-%s-it-reads-on-by-edges", version, name);
		ADD(writes_between, i, "tcp%d.inherited.by-%s-it-writes-between", version, name);
		ADD(serves, i, "tcp%d.inherited.by-%s-it-serves", version, name);
		ADD(accepts, i, "tcp%d.inherited.by-%s-it-accepts", version, name);
	}
}

TCPS("inherited.as-standard-input-and-output")
{
	struct ends e = ends_of(kind);
	struct flow out = {5, 0}, in = out;
	char *words[] = {"cat", NULL};
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		dup2(e.b, 0);
		dup2(e.b, 1);
		closefrom(3);
		execvp("cat", words);
		_exit(127);
	}
	EQ(close(e.b), 0);
	NEED(flow_send(&out, e.a, 30000) && shutdown(e.a, SHUT_WR) == 0);
	CHECK(flow_recv_to_the_end(&in, e.a));
	EQ(in.at, 30000);
	CHECK(child_ended_well(child));
	EQ(close(e.a), 0);
}

/* The one process: what it had taken and not is the same before and after. */
TCPS("inherited.by-the-program-that-replaces-it")
{
	struct ends e = ends_of(kind);
	struct flow out = {6, 0}, in = out;
	struct words w;

	NEED(flow_send(&out, e.a, 1000) && octets_come(e.b, 1000));
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		NEED(flow_recv(&in, e.b, 345));
		words_of(&w, "read", e.b, in, 655);
		execv(program, w.argv);
		_exit(127);
	}
	CHECK(child_ended_well(child));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	flow_both_ways(e);
	ends_close(e);
}

TCPS("inherited.not-by-a-program-that-does-not-start")
{
	struct ends e = ends_of(kind);
	struct flow out = {7, 0}, in = out;
	char *words[] = {"none", NULL};
	int status = 0;

	NEED(flow_send(&out, e.a, 500) && octets_come(e.b, 500) && flow_recv(&in, e.b, 100));
	pid_t child = vfork();
	if (child == 0) {
		execv("/nowhere/none", words);
		_exit(99);
	}
	EQ(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)), child);
	EQ(WEXITSTATUS(status), 99);
	/* Nor by one that fails without a child. */
	FAILS(execv("/nowhere/none", words), ENOENT);
	NEED(flow_recv(&in, e.b, 400));
	flow_both_ways(e);
	ends_close(e);
}

TCPS("inherited.and-killed-in-its-call")
{
	struct ends e = ends_of(kind);
	struct flow out = {8, 0}, in = out;
	int status = 0;

	pid_t child = start(BY_VFORK, "read", e.b, in, 100000);
	NEED(flow_send(&out, e.a, 50000));
	/* It has read all that there is and waits for more. */
	int left = 1;
	for (double end = deadline(); left > 0 && now() < end; sleep_ms(1))
		NEED(ioctl(e.b, FIONREAD, &left) == 0);
	EQ(kill(child, SIGKILL), 0);
	EQ(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)), child);
	CHECK(WIFSIGNALED(status));
	in.at = 50000;
	NEED(flow_send(&out, e.a, 300) && flow_recv(&in, e.b, 300));
	flow_both_ways(e);
	ends_close(e);
}

/* --- who may not go on with them: what another user's program has of the state it reads and writes */

/* The environment of this process without a name that begins so; a copy to be freed. */
static char **environment_without(const char *name)
{
	size_t count = 0, left = 0;

	while (environ[count])
		count++;
	char **copy = calloc(count + 1, sizeof(*copy));
	for (size_t i = 0; copy && i < count; i++)
		if (strncmp(environ[i], name, strlen(name)) != 0)
			copy[left++] = environ[i];
	return copy;
}

static void not_under_weft(long how)
{
	struct ends e = ends_of(TCP4);
	char **bare = environment_without("LD_PRELOAD=");
	struct words w;
	pid_t child = 0;

	words_of(&w, "nothing", e.b, (struct flow){0, 0}, 0);
	NEED(bare);
	if (how == BY_SPAWN)
		EQ(posix_spawn(&child, program, NULL, NULL, w.argv, bare), 0);
	else if ((child = how == BY_FORK ? fork() : vfork()) == 0) {
		execve(program, w.argv, bare);
		_exit(127);
	}
	CHECK(child_ended_well(child));
	free(bare);
	talks(e.a, e.b);
	ends_close(e);
}

CASES
{
	for (long i = 0; i < STARTINGS; i++)
		ADD(not_under_weft, i, "inherited.not-by-%s-where-nothing-is-looked-after", starting_names[i]);
}

/* An exec that fails leaves the process as it was, and what it starts then too. */
static void not_after_an_exec_that_failed(long how)
{
	struct ends e = ends_of(TCP4);
	char **bare = environment_without("LD_PRELOAD="), *argv[] = {"nothing", NULL};
	struct words w;
	pid_t child = 0;

	words_of(&w, "nothing", e.b, (struct flow){0, 0}, 0);
	NEED(bare);
	FAILS(how ? execve("/nothing/of/that/name", argv, environ) : execv("/nothing/of/that/name", argv), ENOENT);
	EQ(posix_spawn(&child, program, NULL, NULL, w.argv, bare), 0);
	CHECK(child_ended_well(child));
	free(bare);
	talks(e.a, e.b);
	ends_close(e);
}

CASES
{
	ADD(not_after_an_exec_that_failed, 0, "inherited.not-after-an-execv-that-failed");
	ADD(not_after_an_exec_that_failed, 1, "inherited.not-after-an-execve-that-failed");
}

CASE("inherited.not-by-another-user")
{
	if (geteuid() != 0)
		SKIP("another user's program is started by root");
	struct ends e = ends_of(TCP4);
	char **unruled = environment_without("WEFT_DDP");
	struct words w;

	words_of(&w, "nothing", e.b, (struct flow){0, 0}, 0);
	NEED(unruled);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		if (setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0)
			execve(program, w.argv, unruled);
		_exit(127);
	}
	CHECK(child_ended_well(child));
	free(unruled);
	ends_close(e);
}

/* A program in between that has no rule, and knows of no connection. */
CASE("inherited.not-through-a-program-without-a-rule")
{
	struct ends e = ends_of(TCP4);
	char **unruled = environment_without("WEFT_DDP");
	struct words w;

	words_of(&w, "through", e.b, (struct flow){0, 0}, 0);
	NEED(unruled);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		execve(program, w.argv, unruled);
		_exit(127);
	}
	CHECK(child_ended_well(child));
	free(unruled);
	ends_close(e);
}
