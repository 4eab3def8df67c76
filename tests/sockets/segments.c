/* Several datagrams of one call: corking, MSG_MORE, UDP_SEGMENT, UDP_GRO. */
#include "env.h"

/* --- gathering by hand: corking and MSG_MORE */

UDPS("cork-makes-one-of-several")
{
	struct ends e = ends_of(kind);
	char got[16];

	set_int(e.a, IPPROTO_UDP, UDP_CORK, 1);
	EQ(get_int(e.a, IPPROTO_UDP, UDP_CORK), 1);
	EQ(send(e.a, "ab", 2, 0), 2);
	EQ(write(e.a, "cd", 2), 2);
	CHECK(stays_quiet(e.b));
	set_int(e.a, IPPROTO_UDP, UDP_CORK, 0);
	EQ(recv(e.b, got, 16, 0), 4);
	SAME(got, "abcd", 4);
	ends_close(e);
}

UDPS("msg_more-makes-one-of-several")
{
	struct ends e = ends_of(kind);
	char got[16];

	EQ(send(e.a, "ab", 2, MSG_MORE), 2);
	EQ(send(e.a, "cd", 2, MSG_MORE), 2);
	CHECK(stays_quiet(e.b));
	EQ(send(e.a, "ef", 2, 0), 2);
	EQ(recv(e.b, got, 16, 0), 6);
	SAME(got, "abcdef", 6);
	ends_close(e);
}

/* --- segmentation and coalescing that the program asks for itself */

static void want_gso(int fd)
{
	int segment = 100;

	if (setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment)) != 0)
		SKIP("this kernel has no UDP_SEGMENT (%s)", strerror(errno));
}

UDPS("segment-by-option")
{
	struct ends e = ends_of(kind);
	char out[350], got[512];

	fill(out, sizeof(out), 2);
	want_gso(e.a);
	EQ(get_int(e.a, IPPROTO_UDP, UDP_SEGMENT), 100);
	EQ(send(e.a, out, sizeof(out), 0), (long)sizeof(out));
	for (int i = 0; i < 4; i++) {
		EQ(recv(e.b, got, sizeof(got), 0), i < 3 ? 100 : 50);
		SAME(got, out + 100 * i, i < 3 ? 100 : 50);
	}
	set_int(e.a, IPPROTO_UDP, UDP_SEGMENT, 0);
	EQ(send(e.a, out, sizeof(out), 0), (long)sizeof(out));
	EQ(recv(e.b, got, sizeof(got), 0), (long)sizeof(out));
	ends_close(e);
}

UDPS("segment-by-control-message")
{
	struct ends e = ends_of(kind);
	char out[250], got[512], space[CMSG_SPACE(sizeof(uint16_t))] = {};
	uint16_t segment = 100;
	struct iovec v = {out, sizeof(out)};
	struct msghdr msg = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	fill(out, sizeof(out), 2);
	want_gso(e.a);
	set_int(e.a, IPPROTO_UDP, UDP_SEGMENT, 0);
	*head = (struct cmsghdr){.cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT, .cmsg_len = CMSG_LEN(sizeof(segment))};
	memcpy(CMSG_DATA(head), &segment, sizeof(segment));
	EQ(sendmsg(e.a, &msg, 0), (long)sizeof(out));
	EQ(recv(e.b, got, sizeof(got), 0), 100);
	EQ(recv(e.b, got, sizeof(got), 0), 100);
	EQ(recv(e.b, got, sizeof(got), 0), 50);
	ends_close(e);
}

UDPS("segment-of-too-many-is-refused")
{
	struct ends e = ends_of(kind);
	static char out[60000];

	want_gso(e.a);
	set_int(e.a, IPPROTO_UDP, UDP_SEGMENT, 10);
	EQ(send(e.a, out, sizeof(out), 0), -1);
	CHECK(errno == EINVAL || errno == EMSGSIZE);
	ends_close(e);
}

UDPS("coalescing-gives-one-of-several")
{
	struct ends e = ends_of(kind);
	char out[300], got[1024], space[CMSG_SPACE(sizeof(int))];
	struct iovec in = {got, sizeof(got)};
	struct msghdr msg = {.msg_iov = &in, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
	int on = 1;

	fill(out, sizeof(out), 2);
	want_gso(e.a);
	if (setsockopt(e.b, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) != 0)
		SKIP("this kernel has no UDP_GRO (%s)", strerror(errno));
	EQ(send(e.a, out, sizeof(out), 0), 300);
	ssize_t first = recvmsg(e.b, &msg, 0);
	/* One of 300 with the segments' size, or three of 100. */
	CHECK(first == 300 || first == 100);
	SAME(got, out, (size_t)first);
	if (first == 300) {
		struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
		int segment;
		NEED(head && head->cmsg_level == IPPROTO_UDP && head->cmsg_type == UDP_GRO);
		memcpy(&segment, CMSG_DATA(head), sizeof(segment));
		EQ(segment, 100);
	}
	ends_close(e);
}

UDPS("without-coalescing-segments-come-apart")
{
	struct ends e = ends_of(kind);
	char out[300], got[1024];

	want_gso(e.a);
	EQ(send(e.a, out, sizeof(out), 0), 300);
	for (int i = 0; i < 3; i++)
		EQ(recv(e.b, got, sizeof(got), 0), 100);
	ends_close(e);
}
