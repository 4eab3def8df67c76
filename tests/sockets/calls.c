/* Every call that moves octets of a stream, in every pair of a sending and a receiving one; empty calls; vectors; the
   fields of a message. */
#include "flow.h"
#include "ways.h"

#include <sys/mman.h>
#include <sys/sendfile.h>

/* --- each sending call with each receiving one */

static void each_with_each(long all)
{
	long kind = all % 2 ? TCP6 : TCP4;
	enum way_out out_by = (enum way_out)(all / 2 % WAYS_OUT);
	enum way_in in_by = (enum way_in)(all / 2 / WAYS_OUT);
	struct ends e = ends_of(kind);
	struct flow out = {1, 0}, in = out;
	char octets[6000];
	unsigned seed = (unsigned)all;

	for (int i = 0; i < 25; i++) {
		/* Other sizes for the two sides: what one message left, the next call has to begin with. */
		for (size_t left = 1 + any_below(&seed, sizeof(octets) - 1); left;) {
			struct flow next = out;
			flow_next(&next, octets, left);
			ssize_t sent = put(out_by, e.a, octets, left);
			NEED(sent > 0 && (size_t)sent <= left);
			out.at += (uint64_t)sent;
			left -= (size_t)sent;
		}
		/* Sometimes not all is taken before the next comes; what is left has room in any buffer. */
		while (in.at < out.at && (i == 24 || out.at - in.at > 20000 || any_below(&seed, 4))) {
			ssize_t got = get(in_by, e.b, octets, 1 + any_below(&seed, sizeof(octets) - 1));
			NEED(got > 0 && flow_is(&in, octets, (size_t)got));
		}
	}
	EQ(in.at, out.at);
	EQ(wait_for(e.b, POLLIN, 0), 0);
	ends_close(e);
}

CASES
{
	for (long i = 0; i < 2 * WAYS_OUT * WAYS_IN; i++)
		ADD(each_with_each, i, "tcp%d.calls.%s-to-%s", i % 2 ? 6 : 4, way_out_names[i / 2 % WAYS_OUT],
		    way_in_names[i / 2 / WAYS_OUT]);
}

/* --- of nothing */

TCPS("calls.of-no-octets-send-none")
{
	struct ends e = ends_of(kind);
	struct iovec none[2] = {{NULL, 0}, {NULL, 0}};
	struct msghdr msg = {.msg_iov = none, .msg_iovlen = 2}, no_vector = {};
	struct mmsghdr two[2] = {{.msg_hdr = msg}, {.msg_hdr = no_vector}};
	int file = memfd_create("sockets-conformance", 0), in[2];

	NEED(file >= 0 && pipe(in) == 0);
	EQ(write(e.a, "", 0), 0);
	EQ(writev(e.a, none, 2), 0);
	EQ(send(e.a, NULL, 0, 0), 0);
	EQ(sendto(e.a, "", 0, MSG_MORE, NULL, 0), 0);
	EQ(sendmsg(e.a, &msg, 0), 0);
	EQ(sendmsg(e.a, &no_vector, 0), 0);
	EQ(sendmmsg(e.a, two, 2, 0), 2);
	EQ(two[0].msg_len + two[1].msg_len, 0);
	EQ(sendfile(e.a, file, NULL, 0), 0);
	EQ(sendfile(e.a, file, NULL, 100), 0);
	EQ(splice(in[0], NULL, e.a, NULL, 0, 0), 0);
	CHECK(stays_quiet(e.b));
	talks(e.a, e.b);
	EQ(close(file), 0);
	EQ(close(in[0]), 0);
	EQ(close(in[1]), 0);
	ends_close(e);
}

TCPS("calls.of-no-octets-take-none")
{
	struct ends e = ends_of(kind);
	struct iovec none[2] = {{NULL, 0}, {NULL, 0}};
	struct msghdr msg = {.msg_iov = none, .msg_iovlen = 2};
	char got[8];

	/* Nothing there: read(2) of nothing returns, recv waits for an octet that it does not take. */
	EQ(read(e.b, got, 0), 0);
	EQ(readv(e.b, none, 2), 0);
	FAILS(recv(e.b, got, 0, MSG_DONTWAIT), EAGAIN);
	FAILS(recvmsg(e.b, &msg, MSG_DONTWAIT), EAGAIN);
	EQ(send(e.a, "there", 5, 0), 5);
	NEED(octets_come(e.b, 5));
	EQ(read(e.b, got, 0), 0);
	EQ(readv(e.b, none, 2), 0);
	EQ(recv(e.b, NULL, 0, 0), 0);
	EQ(recv(e.b, got, 0, MSG_PEEK), 0);
	EQ(recv(e.b, got, 0, MSG_WAITALL), 0);
	EQ(recvmsg(e.b, &msg, 0), 0);
	EQ(recv(e.b, got, 8, 0), 5);
	SAME(got, "there", 5);
	ends_close(e);
}

/* --- vectors */

enum { VECTORS = 1024 /* IOV_MAX */ };

TCPS("calls.vectors-as-many-as-there-may-be")
{
	calm();
	struct ends e = ends_of(kind);
	static char out_octets[VECTORS * 8], in_octets[VECTORS * 8];
	static struct iovec out[VECTORS], in[VECTORS];
	struct flow sent = {2, 0}, got = sent;
	size_t used = 0, room = 0;

	flow_next(&sent, out_octets, sizeof(out_octets));
	for (size_t i = 0; i < VECTORS; i++) {
		/* Every third is empty, with an address or without. */
		out[i] = (struct iovec){i % 6 ? out_octets + used : NULL, i % 3 ? i % 8 : 0};
		used += out[i].iov_len;
		in[i] = (struct iovec){in_octets + room, i % 5 ? 4 : 0};
		room += in[i].iov_len;
	}
	EQ(writev(e.a, out, VECTORS), (ssize_t)used);
	NEED(octets_come(e.b, (int)used));
	ssize_t first = readv(e.b, in, VECTORS);
	EQ(first, (ssize_t)(used < room ? used : room));
	NEED(first > 0 && flow_is(&got, in_octets, (size_t)first));
	NEED(flow_recv(&got, e.b, used - (size_t)first));

	struct msghdr msg = {.msg_iov = out, .msg_iovlen = VECTORS};
	EQ(sendmsg(e.a, &msg, 0), (ssize_t)used);
	got.at = 0;
	NEED(octets_come(e.b, (int)used));
	msg = (struct msghdr){.msg_iov = in, .msg_iovlen = VECTORS};
	EQ(recvmsg(e.b, &msg, 0), first);
	NEED(flow_is(&got, in_octets, (size_t)first));
	NEED(flow_recv(&got, e.b, used - (size_t)first));
	ends_close(e);
}

TCPS("calls.vectors-of-one-octet-each")
{
	calm();
	struct ends e = ends_of(kind);
	static char octets[VECTORS], got[VECTORS];
	static struct iovec v[VECTORS];
	struct flow out = {3, 0}, in = out;

	/* From last to first, so that no two are neighbours in memory. */
	for (size_t i = 0; i < VECTORS; i++)
		v[i] = (struct iovec){octets + VECTORS - 1 - i, 1};
	flow_next(&out, got, VECTORS);
	for (size_t i = 0; i < VECTORS; i++)
		octets[VECTORS - 1 - i] = got[i];
	EQ(writev(e.a, v, VECTORS), VECTORS);
	NEED(octets_come(e.b, VECTORS));
	memset(octets, 0, sizeof(octets));
	EQ(readv(e.b, v, VECTORS), VECTORS);
	for (size_t i = 0; i < VECTORS; i++)
		got[i] = octets[VECTORS - 1 - i];
	CHECK(flow_is(&in, got, VECTORS));
	ends_close(e);
}

TCPS("calls.vectors-of-a-negative-length-move-nothing")
{
	struct ends e = ends_of(kind);
	char octets[8] = "valid";
	struct iovec v[2] = {{octets, 5}, {octets, (size_t)-1}};
	struct msghdr msg = {.msg_iov = v, .msg_iovlen = 2};

	FAILS(writev(e.a, v, 2), EINVAL);
	FAILS(sendmsg(e.a, &msg, 0), EINVAL);
	CHECK(stays_quiet(e.b));
	EQ(send(e.a, "stays", 5, 0), 5);
	NEED(octets_come(e.b, 5));
	FAILS(readv(e.b, v, 2), EINVAL);
	FAILS(recvmsg(e.b, &msg, 0), EINVAL);
	EQ(recv(e.b, octets, 8, 0), 5);
	SAME(octets, "stays", 5);
	ends_close(e);
}

TCPS("calls.with-room-for-gigabytes")
{
	struct ends e = ends_of(kind);
	size_t room = 3ull << 30;
	char *octets = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct iovec v[2] = {{octets, 1 << 30}, {octets + (1 << 30), 2u << 30}};

	if (octets == MAP_FAILED)
		SKIP("this machine gives no address space (%s)", strerror(errno));
	EQ(send(e.a, "few", 3, 0), 3);
	NEED(octets_come(e.b, 3));
	EQ(recv(e.b, octets, room, 0), 3);
	EQ(send(e.a, "few", 3, 0), 3);
	NEED(octets_come(e.b, 3));
	EQ(readv(e.b, v, 2), 3);
	SAME(octets, "few", 3);
	/* Many gigabytes to a socket that takes them as they come: as many as it has room for. */
	set_nonblocking(e.a, true);
	ssize_t sent = send(e.a, octets, room, 0);
	CHECK(sent > 0 && (size_t)sent < room);
	EQ(munmap(octets, room), 0);
	ends_close(e);
}

TCPS("calls.preadv2-that-may-not-wait")
{
	struct ends e = ends_of(kind);
	char got[8];
	struct iovec v = {got, 8}, out = {"now", 3};

	EQ(preadv2(e.b, &v, 1, -1, RWF_NOWAIT), -1);
	if (errno == EOPNOTSUPP)
		SKIP("this kernel has no RWF_NOWAIT of sockets");
	EQ(errno, EAGAIN);
	EQ(pwritev2(e.a, &out, 1, -1, RWF_NOWAIT), 3);
	NEED(octets_come(e.b, 3));
	EQ(preadv2(e.b, &v, 1, -1, RWF_NOWAIT), 3);
	SAME(got, "now", 3);
	/* A place is for what has places. */
	FAILS(preadv2(e.b, &v, 1, 0, 0), ESPIPE);
	FAILS(pwritev2(e.a, &out, 1, 0, 0), ESPIPE);
	ends_close(e);
}

/* --- the fields of a message */

TCPS("calls.recvmsg-names-nobody")
{
	struct ends e = ends_of(kind);
	char got[8], control[64];
	struct iovec in = {got, 8};
	struct name from = {.length = sizeof(from.storage)};
	struct msghdr msg = {.msg_name = &from.any, .msg_namelen = from.length, .msg_iov = &in, .msg_iovlen = 1,
			     .msg_control = control, .msg_controllen = sizeof(control), .msg_flags = -1};

	EQ(send(e.a, "abc", 3, 0), 3);
	EQ(recvmsg(e.b, &msg, 0), 3);
	EQ(msg.msg_namelen, 0);
	EQ(msg.msg_controllen, 0);
	EQ(msg.msg_flags, 0);
	ends_close(e);
}

TCPS("calls.sendmsg-to-an-address-goes-to-the-peer")
{
	struct ends e = ends_of(kind), other = ends_of(kind);
	struct name name = name_of(other.b);
	struct iovec out = {"mine", 4};
	struct msghdr msg = {.msg_name = &name.any, .msg_namelen = name.length, .msg_iov = &out, .msg_iovlen = 1};
	struct mmsghdr one = {.msg_hdr = msg};
	char got[16];

	EQ(sendmsg(e.a, &msg, 0), 4);
	EQ(sendmmsg(e.a, &one, 1, 0), 1);
	EQ(sendto(e.a, "mine", 4, 0, &name.any, name.length), 4);
	NEED(recv_all(e.b, got, 12));
	SAME(got, "minemine", 8);
	EQ(wait_for(other.b, POLLIN, 0), 0);
	ends_close(e);
	ends_close(other);
}

TCPS("calls.recvmsg-with-timestamps-asked-for")
{
	struct ends e = ends_of(kind);
	struct flow out = {4, 0}, in = out;

	set_int(e.b, SOL_SOCKET, SO_TIMESTAMP, 1);
	for (size_t i = 1; i < 2000; i = i * 3 + 1) {
		char got[4000], control[128];
		struct iovec v = {got, sizeof(got)};
		struct msghdr msg = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
				     .msg_controllen = sizeof(control)};
		NEED(flow_send(&out, e.a, i));
		NEED(octets_come(e.b, (int)i));
		EQ(recvmsg(e.b, &msg, 0), (ssize_t)i);
		NEED(flow_is(&in, got, i));
		/* Kernels may tell or not; nothing else is told. */
		for (struct cmsghdr *head = CMSG_FIRSTHDR(&msg); head; head = CMSG_NXTHDR(&msg, head))
			CHECK(head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_TIMESTAMP);
	}
	ends_close(e);
}

TCPS("calls.sendmsg-with-unknown-control-sends-nothing")
{
	struct ends e = ends_of(kind);
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_level = SOL_SOCKET, .cmsg_type = 9999, .cmsg_len = CMSG_LEN(sizeof(int))}};
	struct iovec out = {"x", 1};
	struct msghdr msg = {.msg_iov = &out, .msg_iovlen = 1, .msg_control = &control,
			     .msg_controllen = sizeof(control)};

	FAILS(sendmsg(e.a, &msg, 0), EINVAL);
	CHECK(stays_quiet(e.b));
	/* Of another protocol: not TCP's to know. */
	control.head.cmsg_level = IPPROTO_UDP;
	EQ(sendmsg(e.a, &msg, 0), 1);
	CHECK(is_readable(e.b));
	ends_close(e);
}

TCPS("calls.sendmmsg-tells-the-messages-before-a-bad-one")
{
	struct ends e = ends_of(kind);
	static struct iovec too_many[VECTORS + 1];
	struct iovec good = {"good", 4};
	struct mmsghdr three[3] = {{.msg_hdr = {.msg_iov = &good, .msg_iovlen = 1}},
				   {.msg_hdr = {.msg_iov = too_many, .msg_iovlen = VECTORS + 1}},
				   {.msg_hdr = {.msg_iov = &good, .msg_iovlen = 1}}};
	char got[16];

	EQ(sendmmsg(e.a, three, 3, 0), 1);
	EQ(three[0].msg_len, 4);
	FAILS(sendmmsg(e.a, three + 1, 2, 0), EMSGSIZE);
	NEED(octets_come(e.b, 4));
	EQ(recv(e.b, got, 16, 0), 4);
	CHECK(stays_quiet(e.b));
	ends_close(e);
}

TCPS("calls.recvmmsg-fills-one-message-after-the-other")
{
	struct ends e = ends_of(kind);
	struct flow out = {5, 0}, in = out;
	char got[8][100];
	struct iovec v[8];
	struct mmsghdr many[8] = {};

	for (int i = 0; i < 8; i++) {
		v[i] = (struct iovec){got[i], sizeof(got[i])};
		many[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1};
	}
	NEED(flow_send(&out, e.a, 350));
	NEED(octets_come(e.b, 350));
	/* Three full ones, what was left in the fourth, and no fifth. */
	EQ(recvmmsg(e.b, many, 8, MSG_DONTWAIT, NULL), 4);
	for (int i = 0; i < 4; i++) {
		EQ(many[i].msg_len, i < 3 ? 100 : 50);
		EQ(many[i].msg_hdr.msg_flags, 0);
		CHECK(flow_is(&in, got[i], many[i].msg_len));
	}
	/* The end of the stream is an empty message, again and again. */
	NEED(flow_send(&out, e.a, 10) && shutdown(e.a, SHUT_WR) == 0);
	NEED(wait_for(e.b, POLLRDHUP, patience));
	int count = recvmmsg(e.b, many, 8, 0, NULL);
	CHECK(count >= 1 && many[0].msg_len == 10);
	CHECK(flow_is(&in, got[0], 10));
	EQ(recv(e.b, got[0], 8, 0), 0);
	ends_close(e);
}
