/* A thread that waits in a call. */
#ifndef WEFT_SOCKETS_WAITER_H
#define WEFT_SOCKETS_WAITER_H

#include "env.h"

struct waiter {
	int fd, error;
	ssize_t result;
	char octets[16];
	pid_t tid;
};

void *wait_recv(void *of);
/* Only looks; and waits for all 16 octets. */
void *wait_peek(void *of);
void *wait_recv_all(void *of);
void *wait_accept(void *of);
void *wait_send(void *of);
/* Such a thread, asleep in its call. */
pthread_t waiting(struct waiter *w, void *(*run)(void *));

/* Says that the calling thread makes its call next; and waits until it sleeps there. */
void tell(pid_t *tid);
void until_asleep(const pid_t *tid);

#endif
