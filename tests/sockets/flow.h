/* Octets that tell their place in a stream: none is lost, doubled or moved without being noticed. */
#ifndef WEFT_SOCKETS_FLOW_H
#define WEFT_SOCKETS_FLOW_H

#include "env.h"

/* One direction of a connection, at one of its ends: so many octets went through. Both ends begin with one seed. */
struct flow {
	unsigned seed;
	uint64_t at;
};

/* The next octets of the stream, for the sender; and whether these are the next, for the receiver. Both move on. */
void flow_next(struct flow *f, void *to, size_t length);
bool flow_is(struct flow *f, const void *octets, size_t length);

/* So many octets, in calls of any size; and what comes until the stream ends, within the patience of a case. */
bool flow_send(struct flow *f, int fd, size_t length);
bool flow_recv(struct flow *f, int fd, size_t length);
bool flow_recv_to_the_end(struct flow *f, int fd);

/* Sends until the socket takes no more, and gives up soon: what it took is told by `f->at`. */
void flow_fill(struct flow *f, int fd);

/* A message there and one back: the connection is as it should be, and nothing else is in it. */
void flow_both_ways(struct ends e);

/* A number below `most`; seeds decide. Small numbers are as likely as large ones. */
size_t any_below(unsigned *seed, size_t most);

/* Two connected sockets that soon are full. */
struct ends tight_ends(long kind);

#endif
