/* A thread that waits in a call. */
#ifndef WEFT_SOCKETS_WAITER_H
#define WEFT_SOCKETS_WAITER_H

#include "env.h"

struct waiter {
	int fd, error;
	ssize_t result;
	char octets[16];
};

void *wait_recv(void *of);
void *wait_accept(void *of);
void *wait_send(void *of);
void *recv_and_tell(void *of);
pthread_t waiting(struct waiter *w, void *(*run)(void *));

#endif
