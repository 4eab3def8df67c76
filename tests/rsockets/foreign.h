/* A peer whose rsockets are not Weft's, on an ordinary socket: octet by octet what rdma-core sends over iWARP. */
#ifndef WEFT_RSOCKETS_FOREIGN_H
#define WEFT_RSOCKETS_FOREIGN_H

#include "env.h"

/* Such a peer, and where the next octets of its stream go at the other end. */
struct peer {
	int fd;
	uint32_t msn;
	uint32_t data_stag;
	uint64_t data_to;
};

/* What the peer says of itself: messages that it has buffers for, octets that it takes, ranges that may be mapped. */
struct said {
	uint16_t credits;
	uint32_t window;
	uint8_t ranges;
};

/* The kinds of its words, and the two that end its direction and the connection. */
enum { WORD_DATA = 0, WORD_CREDIT = 4, WORD_MAP = 6, WORD_CONTROL = 7 };
enum { SHUTDOWN = 2, DISCONNECT = 0 };

/* Connects an rsocket to such a peer. */
int connected_to(struct peer *p, struct said said);

/* The peer sends octets of the stream and the word that tells of them; a word alone. False where it cannot. */
void peer_sends(struct peer *p, const void *octets, size_t length);
bool peer_says(struct peer *p, unsigned kind, uint32_t value);

/* The kind of the next word that comes to the peer, past what is written to its memory; -1 at the end. */
int peer_hears(struct peer *p);

#endif
