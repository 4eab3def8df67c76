/* Asking whether a socket is ready. */
#ifndef WEFT_SOCKETS_READY_H
#define WEFT_SOCKETS_READY_H

#include "env.h"

/* An octet arrives at b; and what is there is taken. */
void make_ready(struct ends e);
void take_some(int fd);

int select_one(int fd, bool for_writing, int ms);

int a_poll(void);
/* The event's data says which descriptor. */
void watch(int set, int fd, uint32_t events);
/* How many events within the time; the first in `got`. */
int events_of(int set, struct epoll_event *got, int ms);

#endif
