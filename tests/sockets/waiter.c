/* A thread that waits in a call. */
#include "waiter.h"

void *wait_recv(void *of)
{
	struct waiter *w = of;

	errno = 0;
	w->result = recv(w->fd, w->octets, sizeof(w->octets), 0);
	w->error = errno;
	return NULL;
}

pthread_t waiting(struct waiter *w, void *(*run)(void *))
{
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, run, w) == 0);
	/* It is asleep in the call by then, most likely; the outcome is the same if not. */
	sleep_ms(20);
	return thread;
}

void *wait_accept(void *of)
{
	struct waiter *w = of;

	errno = 0;
	w->result = accept(w->fd, NULL, NULL);
	w->error = errno;
	return NULL;
}

void *wait_send(void *of)
{
	struct waiter *w = of;
	static char octets[1 << 22];

	errno = 0;
	w->result = send(w->fd, octets, sizeof(octets), MSG_NOSIGNAL);
	w->error = errno;
	return NULL;
}

void *recv_and_tell(void *of)
{
	struct waiter *w = of;

	errno = 0;
	w->result = recv(w->fd, w->octets, 4, 0);
	w->error = errno;
	return NULL;
}
