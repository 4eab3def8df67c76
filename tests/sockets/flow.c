/* Octets that tell their place in a stream. */
#include "flow.h"

static unsigned char octet_at(unsigned seed, uint64_t at)
{
	/* Neighbours differ, and so do octets that are a power of two apart: the high octet of a product. */
	return (unsigned char)((at + seed * 1000003ull + 1) * 0x9e3779b97f4a7c15ull >> 56);
}

void flow_next(struct flow *f, void *to, size_t length)
{
	for (size_t i = 0; i < length; i++)
		((unsigned char *)to)[i] = octet_at(f->seed, f->at + i);
	f->at += length;
}

bool flow_is(struct flow *f, const void *octets, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (((const unsigned char *)octets)[i] != octet_at(f->seed, f->at + i))
			return CHECKF(false, "octet %llu of the stream is wrong: %#x",
				      (unsigned long long)(f->at + i), ((const unsigned char *)octets)[i]);
	f->at += length;
	return true;
}

bool flow_send(struct flow *f, int fd, size_t length)
{
	char octets[16384];

	for (size_t done = 0; done < length;) {
		size_t some = length - done < sizeof(octets) ? length - done : sizeof(octets);
		flow_next(f, octets, some);
		if (!send_all(fd, octets, some))
			return CHECKF(false, "sent %zu of %zu octets (%s)", done, length, strerror(errno));
		done += some;
	}
	return true;
}

bool flow_recv(struct flow *f, int fd, size_t length)
{
	char octets[16384];

	for (size_t done = 0; done < length;) {
		size_t some = length - done < sizeof(octets) ? length - done : sizeof(octets);
		if (!recv_all(fd, octets, some) || !flow_is(f, octets, some))
			return false;
		done += some;
	}
	return true;
}

bool flow_recv_to_the_end(struct flow *f, int fd)
{
	char octets[16384];

	for (;;) {
		if (!is_readable(fd))
			return CHECKF(false, "after %llu octets nothing comes", (unsigned long long)f->at);
		ssize_t got = recv(fd, octets, sizeof(octets), 0);
		if (got == 0)
			return true;
		if (got < 0)
			return CHECKF(false, "recv fails after %llu octets (%s)", (unsigned long long)f->at,
				      strerror(errno));
		if (!flow_is(f, octets, (size_t)got))
			return false;
	}
}

void flow_fill(struct flow *f, int fd)
{
	char octets[16384];

	/* What the other side's buffer takes moves on for a while. */
	for (int idle = 0; idle < 5;) {
		struct flow next = *f;
		flow_next(&next, octets, sizeof(octets));
		ssize_t got = send(fd, octets, sizeof(octets), MSG_NOSIGNAL | MSG_DONTWAIT);
		if (got > 0) {
			f->at += (uint64_t)got;
			idle = 0;
		} else {
			NEED(errno == EAGAIN || errno == EINTR);
			idle += errno == EAGAIN;
			sleep_ms(5);
		}
	}
}

void flow_both_ways(struct ends e)
{
	struct flow out = {901, 0}, in = out, back_out = {902, 0}, back_in = back_out;

	NEED(flow_send(&out, e.a, 777));
	NEED(flow_recv(&in, e.b, 777));
	NEED(flow_send(&back_out, e.b, 555));
	NEED(flow_recv(&back_in, e.a, 555));
	EQ(wait_for(e.a, POLLIN, 0), 0);
	EQ(wait_for(e.b, POLLIN, 0), 0);
}

size_t any_below(unsigned *seed, size_t most)
{
	*seed = *seed * 1664525 + 1013904223;
	unsigned high = *seed >> 8;
	*seed = *seed * 1664525 + 1013904223;
	/* As many bits as the one number says, of the other. */
	size_t limit = (size_t)2 << high % 20;
	return (*seed >> 4) % (limit < most ? limit : most);
}

struct ends tight_ends(long kind)
{
	enum { ROOM = 32 << 10 };
	int listener = a_bound(kind);
	struct ends e;

	/* Before the connection: its window never was larger. */
	set_int(listener, SOL_SOCKET, SO_RCVBUF, ROOM);
	set_int(listener, SOL_SOCKET, SO_SNDBUF, ROOM);
	NEED(listen(listener, 1) == 0);
	struct name name = name_of(listener);
	e.a = a_socket(kind);
	set_int(e.a, SOL_SOCKET, SO_RCVBUF, ROOM);
	set_int(e.a, SOL_SOCKET, SO_SNDBUF, ROOM);
	NEED(connect(e.a, &name.any, name.length) == 0);
	NEED((e.b = accept(listener, NULL, NULL)) >= 0);
	NEED(close(listener) == 0);
	return e;
}
