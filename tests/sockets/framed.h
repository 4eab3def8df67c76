/* A peer that speaks DDP by hand on a plain TCP socket: it says what no end of Weft's says, or says it in pieces. */
#ifndef WEFT_SOCKETS_FRAMED_H
#define WEFT_SOCKETS_FRAMED_H

#include "env.h"

struct framed {
	int fd;
	/* Where this peer may write. */
	uint64_t to;
	uint32_t stag;
	/* Messages that it has sent. */
	uint32_t messages;
	/* Its FPDUs have a CRC. */
	bool crc;
};

enum { REQUEST_OCTETS = 60 };

/* Message words, as rsockets has them. */
#define WORD_CREDIT ((uint32_t)4 << 29)
#define WORD_KEEPALIVE ((uint32_t)7 << 29 | 1)

/* What the peer says of itself: messages and octets that it has room for, whether it passes for Weft,
   and whether it asks for a CRC. */
struct says {
	unsigned credits, window;
	bool weft, crc;
};

/* Connects, plainly, and says nothing yet. */
struct framed framed_to(long kind, int listener);
/* The Request's octets, as many as `length` of them. */
void framed_asks(struct framed *peer, struct says says, size_t length);
/* Takes the Reply: whoever accepted has to have looked by then. */
void framed_takes_reply(struct framed *peer);
/* The FPDU that opens the other end's direction, and carries nothing. */
void framed_is_ready(struct framed *peer);
/* Octets of the stream, and the message that tells of them. */
void framed_writes(struct framed *peer, const void *octets, size_t length);
/* The beginning of what `framed_writes` sends, so many octets of it. */
void framed_writes_in_part(struct framed *peer, const void *octets, size_t length, size_t part);
/* A Write of nothing, which tells nobody of anything; its octets, for who sends many. */
size_t framed_nothing(const struct framed *peer, void *room, size_t size);
void framed_says(struct framed *peer, uint32_t word);
/* Gives the other end credit for so many messages in all. */
void framed_gives_credit(struct framed *peer, uint16_t messages);

/* A listener that requires DDP, the end that it accepted, and the peer whose Request that end has answered. */
struct framed_ends {
	int listener, fd;
	struct framed peer;
};
struct framed_ends framed_ends(long kind, struct says says);
void framed_ends_close(struct framed_ends *e);

#endif
