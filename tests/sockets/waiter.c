/* A thread that waits in a call. */
#include "waiter.h"

#include <sys/syscall.h>

static void *wait_recv_by(struct waiter *w, int flags)
{
	tell(&w->tid);
	errno = 0;
	w->result = recv(w->fd, w->octets, sizeof(w->octets), flags);
	w->error = errno;
	return NULL;
}

void *wait_recv(void *of)
{
	return wait_recv_by(of, 0);
}

void *wait_peek(void *of)
{
	return wait_recv_by(of, MSG_PEEK);
}

void *wait_recv_all(void *of)
{
	return wait_recv_by(of, MSG_WAITALL);
}

void *wait_accept(void *of)
{
	struct waiter *w = of;

	tell(&w->tid);
	errno = 0;
	w->result = accept(w->fd, NULL, NULL);
	w->error = errno;
	return NULL;
}

void *wait_send(void *of)
{
	struct waiter *w = of;
	static char octets[1 << 22];

	tell(&w->tid);
	errno = 0;
	w->result = send(w->fd, octets, sizeof(octets), MSG_NOSIGNAL);
	w->error = errno;
	return NULL;
}

pthread_t waiting(struct waiter *w, void *(*run)(void *))
{
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, run, w) == 0);
	until_asleep(&w->tid);
	return thread;
}

void tell(pid_t *tid)
{
	__atomic_store_n(tid, gettid(), __ATOMIC_RELEASE);
}

/* Where the kernel says that the thread is (proc_pid_syscall(5)): the call's number and its arguments, if it sleeps in
   one. False without such a file. */
static bool where_is(pid_t tid, char *text, size_t room)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	FILE *file = fopen(path, "r");
	bool told = file && fgets(text, (int)room, file);
	if (file)
		fclose(file);
	return told;
}

static bool sleeps(const char *where)
{
	long call = strtol(where, NULL, 10);

	/* "running", outside of a call, or at a lock on the way to it. */
	return *where >= '0' && *where <= '9' && call != SYS_futex;
}

void until_asleep(const pid_t *tid)
{
	char before[256] = "", where[256];

	/* A storm of signals may keep it from sleep; cases that depend on its sleep are calm. */
	for (double end = case_storm ? now() + 0.2 : deadline(); now() < end; sleep_ms(1)) {
		pid_t thread = __atomic_load_n(tid, __ATOMIC_ACQUIRE);
		if (!thread)
			continue;
		if (!where_is(thread, where, sizeof(where))) {
			/* Not told, or it has ended already: most likely it sleeps by then. */
			sleep_ms(20);
			return;
		}
		/* Twice in the same place. */
		if (sleeps(where) && strcmp(where, before) == 0)
			return;
		strcpy(before, where);
	}
	CHECKF(case_storm, "the thread does not wait in its call, it is at %s", where);
}
