/* Many threads, and forks among them. */
#include "flow.h"

#include <dirent.h>
#include <time.h>

struct talker {
	int fd, count, bad;
};

static void *talk(void *of)
{
	struct talker *t = of;
	unsigned got;

	for (unsigned i = 0; i < (unsigned)t->count; i++) {
		if (send(t->fd, &i, sizeof(i), MSG_NOSIGNAL) != sizeof(i) ||
		    recv(t->fd, &got, sizeof(got), MSG_WAITALL) != sizeof(got) || got != i)
			t->bad++;
	}
	return NULL;
}

SOCKETS("threads-each-with-a-pair")
{
	enum { MANY = 6 };
	struct ends e[MANY];
	struct talker talkers[2 * MANY];
	pthread_t threads[2 * MANY];

	calm();
	for (int i = 0; i < MANY; i++) {
		e[i] = ends_of(kind);
		talkers[2 * i] = (struct talker){e[i].a, 200, 0};
		talkers[2 * i + 1] = (struct talker){e[i].b, 200, 0};
	}
	for (int i = 0; i < 2 * MANY; i++)
		NEED(pthread_create(&threads[i], NULL, talk, &talkers[i]) == 0);
	for (int i = 0; i < 2 * MANY; i++) {
		NEED(join_soon(threads[i], NULL));
		EQ(talkers[i].bad, 0);
	}
	for (int i = 0; i < MANY; i++)
		ends_close(e[i]);
}

static void *open_and_close(void *of)
{
	long kind = *(long *)of;

	for (int i = 0; i < 100; i++) {
		struct ends e = ends_of(kind);
		char got[4];
		if (send(e.a, "x", 1, 0) != 1 || recv(e.b, got, 4, 0) != 1)
			CHECK(!"a new pair works");
		close(e.a);
		close(e.b);
	}
	CHECK(1);
	return NULL;
}

SOCKETS("threads-open-and-close-at-once")
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		NEED(pthread_create(&threads[i], NULL, open_and_close, &kind) == 0);
	for (int i = 0; i < 4; i++)
		join_soon(threads[i], NULL);
}

static void *fork_often(void *of)
{
	(void)of;
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
	}
	return NULL;
}

SOCKETS("threads-fork-while-others-talk")
{
	struct ends e = ends_of(kind);
	struct talker talkers[2] = {{e.a, 300, 0}, {e.b, 300, 0}};
	pthread_t threads[3];

	calm();
	NEED(pthread_create(&threads[0], NULL, talk, &talkers[0]) == 0);
	NEED(pthread_create(&threads[1], NULL, talk, &talkers[1]) == 0);
	NEED(pthread_create(&threads[2], NULL, fork_often, NULL) == 0);
	for (int i = 0; i < 3; i++)
		join_soon(threads[i], NULL);
	EQ(talkers[0].bad + talkers[1].bad, 0);
	ends_close(e);
}

/* It lies on the stack of every thread of the process, those of Weft among them. */
static __thread char thread_local[250 << 10] = "far more than most programs have";

SOCKETS("threads-have-much-thread-local-memory")
{
	struct ends e = ends_of(kind);
	char got[4];

	thread_local[sizeof(thread_local) - 1] = 1;
	for (int i = 0; i < 100; i++) {
		EQ(send(e.a, "x", 1, 0), 1);
		EQ(recv(e.b, got, 4, 0), 1);
	}
	EQ(thread_local[sizeof(thread_local) - 1], 1);
	ends_close(e);
}

/* Threads of this process that Weft has for what nobody calls for. */
static int threads_of_weft(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	NEED(tasks);
	while ((entry = readdir(tasks))) {
		char path[64], name[32] = "";

		snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", entry->d_name);
		int fd = open(path, O_RDONLY);
		if (fd >= 0) {
			CHECK(read(fd, name, sizeof(name) - 1) >= 0);
			EQ(close(fd), 0);
		}
		count += strncmp(name, "weft-flush", 10) == 0;
	}
	EQ(closedir(tasks), 0);
	return count;
}

/* A program of one thread is one again once its connections stand: the kernel's calls are quicker then. */
TCPS("ddp.a-thread-that-has-nothing-to-do-ends-and-another-comes")
{
	for (int round = 0; round < 2; round++) {
		struct ends e = ends_of(kind);
		struct flow out = {1, 0}, in = out;

		CHECK(flow_send(&out, e.a, 100) && flow_recv(&in, e.b, 100));
		/* Counted, since a virtual machine's clock may jump. */
		for (int looks = 0; looks < 1000 && threads_of_weft() > 0; looks++)
			usleep(10000);
		EQ(threads_of_weft(), 0);
		ends_close(e);
	}
}
