#include "foreign.h"

#include <endian.h>

/* MPA's start frames with rsockets' connection data (RFC 5044 and 6581; version 1 of rdma-core's rsocket.c). */
struct connection_data {
	uint8_t version, flags;
	uint16_t credits;
	uint8_t reserved[3], ranges;
	uint64_t list_to;
	uint32_t list_stag, list_length;
	uint64_t data_to;
	uint32_t data_stag, data_length;
} __attribute__((packed));

struct start_frame {
	char key[16];
	uint8_t flags, revision;
	uint16_t private_length, ird, ord;
	struct connection_data data;
} __attribute__((packed));

enum { MAPS = 2, NEITHER_PEER_TO_PEER_BIT = 0xbfff };

struct write_header {
	uint16_t length;
	uint8_t ddp, rdmap;
	uint32_t stag;
	uint64_t to;
} __attribute__((packed));

struct send {
	uint16_t length;
	uint8_t ddp, rdmap;
	uint32_t reserved, queue, msn, offset;
	uint32_t word, crc;
} __attribute__((packed));

enum { TAGGED = 0x80, CRC = 4 };

static bool give(int fd, const void *octets, size_t length)
{
	return send(fd, octets, length, MSG_NOSIGNAL) == (ssize_t)length;
}

static bool take(int fd, void *octets, size_t length)
{
	return length == 0 || recv(fd, octets, length, MSG_WAITALL) == (ssize_t)length;
}

static void answer(struct peer *p, struct said said)
{
	struct start_frame frame;

	NEED(take(p->fd, &frame, sizeof(frame)));
	p->data_stag = be32toh(frame.data.data_stag);
	p->data_to = be64toh(frame.data.data_to);
	memcpy(frame.key, "MPA ID Rep Frame", sizeof(frame.key));
	frame.ird &= htobe16(NEITHER_PEER_TO_PEER_BIT);
	frame.ord &= htobe16(NEITHER_PEER_TO_PEER_BIT);
	frame.data = (struct connection_data){
		.version = 1,
		.flags = said.ranges ? MAPS : 0,
		.credits = htobe16(said.credits),
		.ranges = said.ranges,
		.list_to = htobe64(0x9000),
		.list_stag = htobe32(3),
		.list_length = htobe32(2),
		.data_to = htobe64(0x1000),
		.data_stag = htobe32(2),
		.data_length = htobe32(said.window),
	};
	NEED(give(p->fd, &frame, sizeof(frame)));
}

int connected_to(struct peer *p, struct said said)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = an_rsocket(AF_INET), on = 1, ranges = said.ranges;
	struct name n = loopback(AF_INET);

	NEED(bind(listener, &n.any, n.length) == 0 && listen(listener, 1) == 0);
	NEED(getsockname(listener, &n.any, &n.length) == 0);
	EQ(rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &ranges, sizeof(ranges)), 0);
	NEED(rconnect(fd, &n.any, n.length) == 0);
	*p = (struct peer){.fd = accept(listener, NULL, NULL), .msn = 1};
	NEED(p->fd >= 0 && close(listener) == 0);
	NEED(setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
	answer(p, said);
	return fd;
}

bool peer_says(struct peer *p, unsigned kind, uint32_t value)
{
	struct send message = {
		.length = htobe16(sizeof(message) - sizeof(message.length) - CRC),
		.ddp = 0x41,
		.rdmap = 0x43,
		.msn = htobe32(p->msn++),
		.word = htole32(kind << 29 | value),
	};

	return give(p->fd, &message, sizeof(message));
}

void peer_sends(struct peer *p, const void *octets, size_t length)
{
	static const char trailer[3 + CRC];
	struct write_header header = {
		.length = htobe16((uint16_t)(sizeof(header) - sizeof(header.length) + length)),
		.ddp = 0xc1,
		.rdmap = 0x40,
		.stag = htobe32(p->data_stag),
		.to = htobe64(p->data_to),
	};

	p->data_to += length;
	NEED(give(p->fd, &header, sizeof(header)) && give(p->fd, octets, length));
	NEED(give(p->fd, trailer, -(sizeof(header) + length) % 4 + CRC));
	NEED(peer_says(p, WORD_DATA, (uint32_t)length));
}

int peer_hears(struct peer *p)
{
	static _Thread_local unsigned char rest[1 << 16];

	for (;;) {
		uint8_t head[4];
		if (!take(p->fd, head, sizeof(head)))
			return -1;
		size_t length = (size_t)head[0] << 8 | head[1];
		if (!take(p->fd, rest, (2 + length + 3) / 4 * 4 + CRC - sizeof(head)))
			return -1;
		/* A word stands behind what names its message. */
		if (!(head[2] & TAGGED))
			return rest[sizeof(struct send) - sizeof(head) - CRC - 1] >> 5;
	}
}
