#include "framed.h"
#include "asked.h"

#include <endian.h>

/* Octets of a frame, put one field behind the other. */
struct octets {
	uint8_t at[256];
	size_t length;
};

static void put(struct octets *o, const void *from, size_t length)
{
	NEED(o->length + length <= sizeof(o->at));
	memcpy(o->at + o->length, from, length);
	o->length += length;
}

static void put8(struct octets *o, uint8_t value)
{
	put(o, &value, 1);
}

static void put16(struct octets *o, uint16_t value)
{
	value = htobe16(value);
	put(o, &value, sizeof(value));
}

static void put32(struct octets *o, uint32_t value)
{
	value = htobe32(value);
	put(o, &value, sizeof(value));
}

static void put64(struct octets *o, uint64_t value)
{
	value = htobe64(value);
	put(o, &value, sizeof(value));
}

static void put_target(struct octets *o, uint64_t to, uint32_t stag, uint32_t length)
{
	put64(o, to);
	put32(o, stag);
	put32(o, length);
}

static void leaves(struct framed *peer, const struct octets *o, size_t length)
{
	NEED(send_all(peer->fd, o->at, length));
}

/* CRC32c (RFC 3720 appendix B.4). */
static uint32_t crc_of(const uint8_t *at, size_t length)
{
	uint32_t crc = ~0u;

	for (; length > 0; at++, length--) {
		crc ^= *at;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

/* Padding and the CRC, or zeros in its place, end an FPDU (RFC 5044 section 4). */
static void closes(const struct framed *peer, struct octets *o)
{
	static const uint8_t nothing[3];
	uint32_t crc;

	put(o, nothing, (4 - o->length % 4) % 4);
	crc = peer->crc ? htole32(crc_of(o->at, o->length)) : 0;
	put(o, &crc, sizeof(crc));
}

static void ends(struct framed *peer, struct octets *o)
{
	closes(peer, o);
	leaves(peer, o, o->length);
}

struct framed framed_to(long kind, int listener)
{
	struct framed peer = {.fd = a_socket(kind)};
	struct name at = name_of(listener);
	int one = 1;

	NEED(ask(peer.fd, WEFT_DDP_OFF) == 0 && connect(peer.fd, &at.any, at.length) == 0);
	NEED(setsockopt(peer.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0);
	return peer;
}

void framed_asks(struct framed *peer, struct says says, size_t length)
{
	struct octets o = {0};

	peer->crc = says.crc;
	/* Revision 1; the private data is rsockets', of a little-endian end. */
	put(&o, "MPA ID Req Frame", 16);
	put8(&o, says.crc ? 0x40 : 0);
	put8(&o, 1);
	put16(&o, 40);
	put16(&o, 0x0100);
	put16(&o, says.credits);
	put(&o, says.weft ? "WF\1" : "\0\0\0", 4);
	put_target(&o, 0x9000, 3, 2);
	put_target(&o, 0x1000, 2, says.window);
	EQ(o.length, REQUEST_OCTETS);
	leaves(peer, &o, length);
}

void framed_takes_reply(struct framed *peer)
{
	uint8_t head[20], data[512];
	uint16_t length;

	NEED(recv_all(peer->fd, head, sizeof(head)));
	SAME(head, "MPA ID Rep Frame", 16);
	memcpy(&length, head + 18, sizeof(length));
	length = be16toh(length);
	NEED(length >= 40 && length <= sizeof(data) && recv_all(peer->fd, data, length));
	memcpy(&peer->to, data + length - 16, sizeof(peer->to));
	memcpy(&peer->stag, data + length - 8, sizeof(peer->stag));
	peer->to = be64toh(peer->to);
	peer->stag = be32toh(peer->stag);
}

static struct octets a_write(const struct framed *peer, uint32_t stag, uint64_t to, const void *octets, size_t length)
{
	struct octets o = {0};

	put16(&o, 14 + length);
	put8(&o, 0xc1);
	put8(&o, 0x40);
	put32(&o, stag);
	put64(&o, to);
	put(&o, octets, length);
	closes(peer, &o);
	return o;
}

static void writes(struct framed *peer, uint32_t stag, uint64_t to, const void *octets, size_t length)
{
	struct octets o = a_write(peer, stag, to, octets, length);

	leaves(peer, &o, o.length);
}

void framed_writes_in_part(struct framed *peer, const void *octets, size_t length, size_t part)
{
	struct octets o = a_write(peer, peer->stag, peer->to, octets, length);

	NEED(part < o.length);
	leaves(peer, &o, part);
}

size_t framed_nothing(const struct framed *peer, void *room, size_t size)
{
	struct octets o = a_write(peer, 7, 0, "", 0);

	NEED(o.length <= size);
	memcpy(room, o.at, o.length);
	return o.length;
}

void framed_is_ready(struct framed *peer)
{
	writes(peer, 0, 0, "", 0);
}

void framed_writes(struct framed *peer, const void *octets, size_t length)
{
	writes(peer, peer->stag, peer->to, octets, length);
	peer->to += length;
	framed_says(peer, length);
}

void framed_says(struct framed *peer, uint32_t word)
{
	struct octets o = {0};

	put16(&o, 22);
	put8(&o, 0x41);
	put8(&o, 0x43);
	put32(&o, 0);
	put32(&o, 0);
	put32(&o, ++peer->messages);
	put32(&o, 0);
	word = htole32(word);
	put(&o, &word, sizeof(word));
	ends(peer, &o);
}

void framed_gives_credit(struct framed *peer, uint16_t messages)
{
	framed_says(peer, WORD_CREDIT | messages);
}

struct framed_ends framed_ends(long kind, struct says says)
{
	struct framed_ends e = {.listener = listener_of(kind, WEFT_DDP_REQUIRE)};
	char octet;

	e.peer = framed_to(kind, e.listener);
	e.fd = accept(e.listener, NULL, NULL);
	NEED(e.fd >= 0);
	framed_asks(&e.peer, says, REQUEST_OCTETS);
	NEED(wait_for(e.fd, POLLIN, QUIET) >= 0);
	FAILS(recv(e.fd, &octet, 1, MSG_DONTWAIT), EAGAIN);
	framed_takes_reply(&e.peer);
	return e;
}

void framed_ends_close(struct framed_ends *e)
{
	EQ(close(e->peer.fd), 0);
	EQ(close(e->fd), 0);
	EQ(close(e->listener), 0);
}
