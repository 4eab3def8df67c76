/* Datagrams: boundaries, addresses, errors that come back, control messages, segmentation, groups. */
#include "env.h"

#include <linux/errqueue.h>
#include <net/if.h>

/* --- boundaries */

DATAGRAMS("boundaries-are-kept")
{
	struct ends e = ends_of(kind);
	char got[16];

	EQ(send(e.a, "one", 3, 0), 3);
	EQ(send(e.a, "three", 5, 0), 5);
	EQ(recv(e.b, got, 16, 0), 3);
	EQ(recv(e.b, got, 16, 0), 5);
	FAILS(recv(e.b, got, 16, MSG_DONTWAIT), EAGAIN);
	ends_close(e);
}

DATAGRAMS("of-zero-octets")
{
	struct ends e = ends_of(kind);
	char got[16];
	struct name from = {.length = sizeof(from.storage)};

	EQ(send(e.a, "", 0, 0), 0);
	EQ(send(e.a, "x", 1, 0), 1);
	NEED(is_readable(e.b));
	EQ(recvfrom(e.b, got, 16, 0, &from.any, &from.length), 0);
	EQ(from.length, name_of(e.a).length);
	EQ(recv(e.b, got, 16, 0), 1);
	ends_close(e);
}

DATAGRAMS("of-zero-octets-by-write-and-sendmsg")
{
	struct ends e = ends_of(kind);
	char got[16];
	struct msghdr msg = {};

	EQ(write(e.a, "", 0), 0);
	EQ(sendmsg(e.a, &msg, 0), 0);
	NEED(is_readable(e.b));
	EQ(recv(e.b, got, 16, 0), 0);
	EQ(recv(e.b, got, 16, MSG_DONTWAIT), 0);
	FAILS(recv(e.b, got, 16, MSG_DONTWAIT), EAGAIN);
	ends_close(e);
}

DATAGRAMS("cut-to-the-room")
{
	struct ends e = ends_of(kind);
	char got[16] = "zzzzzzzz";

	EQ(send(e.a, "hello", 5, 0), 5);
	EQ(recv(e.b, got, 3, 0), 3);
	SAME(got, "helz", 4);
	/* The rest is gone. */
	FAILS(recv(e.b, got, 16, MSG_DONTWAIT), EAGAIN);
	ends_close(e);
}

DATAGRAMS("msg_trunc-tells-the-whole-length")
{
	struct ends e = ends_of(kind);
	char got[16];
	struct iovec in = {got, 3};
	struct msghdr msg = {.msg_iov = &in, .msg_iovlen = 1};

	EQ(send(e.a, "hello", 5, 0), 5);
	EQ(recv(e.b, got, 3, MSG_TRUNC | MSG_PEEK), 5);
	EQ(recv(e.b, NULL, 0, MSG_TRUNC | MSG_PEEK), 5);
	EQ(recv(e.b, got, 3, MSG_TRUNC), 5);
	EQ(send(e.a, "hello", 5, 0), 5);
	EQ(recvmsg(e.b, &msg, 0), 3);
	EQ(msg.msg_flags & MSG_TRUNC, MSG_TRUNC);
	EQ(send(e.a, "abc", 3, 0), 3);
	EQ(recvmsg(e.b, &msg, 0), 3);
	EQ(msg.msg_flags & MSG_TRUNC, 0);
	ends_close(e);
}

DATAGRAMS("waitall-takes-one")
{
	struct ends e = ends_of(kind);
	char got[16];

	EQ(send(e.a, "abc", 3, 0), 3);
	EQ(recv(e.b, got, 16, MSG_WAITALL), 3);
	ends_close(e);
}

DATAGRAMS("unconnected-sendto")
{
	int a = a_bound(kind), b = a_bound(kind);
	struct name to = name_of(b), from = {.length = sizeof(from.storage)}, own = name_of(a);
	char got[16];

	EQ(sendto(a, "abc", 3, 0, &to.any, to.length), 3);
	EQ(recvfrom(b, got, 16, 0, &from.any, &from.length), 3);
	EQ(from.length, own.length);
	SAME(&from.storage, &own.storage, own.length);
	/* And answered. */
	EQ(sendto(b, "de", 2, 0, &from.any, from.length), 2);
	EQ(recv(a, got, 16, 0), 2);
	EQ(close(a), 0);
	EQ(close(b), 0);
}

DATAGRAMS("unconnected-without-an-address")
{
	int fd = a_socket(kind);

	EQ(send(fd, "x", 1, 0), -1);
	EQ(errno, kind == UNIX_DGRAM ? ENOTCONN : EDESTADDRREQ);
	EQ(write(fd, "x", 1), -1);
	EQ(errno, kind == UNIX_DGRAM ? ENOTCONN : EDESTADDRREQ);
	EQ(close(fd), 0);
}

DATAGRAMS("connected-takes-from-its-peer-only")
{
	struct ends e = ends_of(kind);
	int other = a_bound(kind);
	struct name to = name_of(e.b);
	char got[16];

	ssize_t sent = sendto(other, "x", 1, 0, &to.any, to.length);
	/* A Unix socket refuses at the sender. */
	if (kind == UNIX_DGRAM)
		CHECK(sent == -1 && errno == EPERM);
	else
		EQ(sent, 1);
	CHECK(stays_quiet(e.b));
	EQ(send(e.a, "mine", 4, 0), 4);
	EQ(recv(e.b, got, 16, 0), 4);
	EQ(close(other), 0);
	ends_close(e);
}

DATAGRAMS("connected-and-sendto-elsewhere")
{
	struct ends e = ends_of(kind);
	int other = a_bound(kind);
	struct name to = name_of(other);
	char got[16];

	EQ(sendto(e.a, "x", 1, 0, &to.any, to.length), 1);
	EQ(recv(other, got, 16, 0), 1);
	/* It is connected as before. */
	EQ(send(e.a, "ab", 2, 0), 2);
	EQ(recv(e.b, got, 16, 0), 2);
	EQ(close(other), 0);
	ends_close(e);
}

DATAGRAMS("connected-anew")
{
	struct ends e = ends_of(kind);
	int other = a_bound(kind);
	struct name to = name_of(other), nothing = {.any.sa_family = AF_UNSPEC};
	char got[16];

	EQ(connect(e.a, &to.any, to.length), 0);
	EQ(send(e.a, "ab", 2, 0), 2);
	EQ(recv(other, got, 16, 0), 2);
	EQ(connect(e.a, &nothing.any, sizeof(nothing.any)), 0);
	nothing.length = sizeof(nothing.storage);
	FAILS(getpeername(e.a, &nothing.any, &nothing.length), ENOTCONN);
	EQ(close(other), 0);
	ends_close(e);
}

DATAGRAMS("many-wait-in-order")
{
	struct ends e = ends_of(kind);
	unsigned got;
	/* A Unix socket queues ten by default. */
	unsigned many = kind == UNIX_DGRAM ? 8 : 100;

	for (unsigned i = 0; i < many; i++)
		EQ(send(e.a, &i, sizeof(i), 0), sizeof(i));
	for (unsigned i = 0; i < many; i++) {
		EQ(recv(e.b, &got, sizeof(got), 0), sizeof(got));
		EQ(got, i);
	}
	ends_close(e);
}

DATAGRAMS("from-many-senders-each-is-named")
{
	int to = a_bound(kind), from[8];
	struct name name = name_of(to);
	char got[4];

	for (int i = 0; i < 8; i++) {
		from[i] = a_bound(kind);
		EQ(sendto(from[i], "x", 1, 0, &name.any, name.length), 1);
	}
	for (int i = 0; i < 8; i++) {
		struct name who = {.length = sizeof(who.storage)}, want = name_of(from[i]);
		EQ(recvfrom(to, got, 4, 0, &who.any, &who.length), 1);
		EQ(who.length, want.length);
		SAME(&who.storage, &want.storage, want.length);
		EQ(close(from[i]), 0);
	}
	EQ(close(to), 0);
}

DATAGRAMS("to-many-destinations-by-sendmmsg")
{
	int from = a_bound(kind), to[6];
	struct name names[6];
	struct iovec out[6];
	struct mmsghdr msgs[6] = {};
	char texts[6][4], got[8];

	for (int i = 0; i < 6; i++) {
		to[i] = a_bound(kind);
		names[i] = name_of(to[i]);
		memcpy(texts[i], (char[]){'t', (char)('0' + i)}, 2);
		out[i] = (struct iovec){texts[i], 2};
		msgs[i].msg_hdr = (struct msghdr){.msg_name = &names[i].any, .msg_namelen = names[i].length,
						  .msg_iov = &out[i], .msg_iovlen = 1};
	}
	EQ(sendmmsg(from, msgs, 6, 0), 6);
	for (int i = 0; i < 6; i++) {
		EQ(msgs[i].msg_len, 2);
		EQ(recv(to[i], got, 8, 0), 2);
		SAME(got, texts[i], 2);
		EQ(close(to[i]), 0);
	}
	EQ(close(from), 0);
}

DATAGRAMS("sendmmsg-stops-at-a-wrong-one")
{
	struct ends e = ends_of(kind);
	struct iovec good = {"ok", 2}, bad = {(void *)8, 2};
	struct mmsghdr msgs[3] = {};
	char got[4];

	msgs[0].msg_hdr = (struct msghdr){.msg_iov = &good, .msg_iovlen = 1};
	msgs[1].msg_hdr = (struct msghdr){.msg_iov = &bad, .msg_iovlen = 1};
	msgs[2].msg_hdr = (struct msghdr){.msg_iov = &good, .msg_iovlen = 1};
	EQ(sendmmsg(e.a, msgs, 3, 0), 1);
	EQ(recv(e.b, got, 4, 0), 2);
	FAILS(recv(e.b, got, 4, MSG_DONTWAIT), EAGAIN);
	FAILS(sendmmsg(e.a, msgs + 1, 2, 0), EFAULT);
	ends_close(e);
}

DATAGRAMS("shutdown-of-writing")
{
	struct ends e = ends_of(kind);

	EQ(shutdown(e.a, SHUT_WR), 0);
	FAILS(send(e.a, "x", 1, MSG_NOSIGNAL), EPIPE);
	ends_close(e);
}

DATAGRAMS("shutdown-of-reading-ends-a-wait")
{
	struct ends e = ends_of(kind);
	char got[4];

	EQ(shutdown(e.b, SHUT_RD), 0);
	EQ(recv(e.b, got, 4, 0), 0);
	ends_close(e);
}

DATAGRAMS("listen-and-accept-are-refused")
{
	int fd = a_bound(kind);

	FAILS(listen(fd, 1), EOPNOTSUPP);
	EQ(accept(fd, NULL, NULL), -1);
	CHECK(errno == EOPNOTSUPP || errno == EINVAL);
	EQ(close(fd), 0);
}

/* --- sizes */

static const int sizes[] = {1, 511, 512, 1023, 1024, 1447, 1448, 1471, 1472, 1473, 4096, 8192, 16384, 40000, 65000};

static void size(long both)
{
	long kind = UDP4 + both % 3;
	int length = sizes[both / 3];
	struct ends e = ends_of(kind);
	static char out[1 << 16], in[1 << 16];

	fill(out, (size_t)length, 3);
	EQ(send(e.a, out, (size_t)length, 0), length);
	EQ(recv(e.b, in, sizeof(in), 0), length);
	CHECK(holds(in, (size_t)length, 3));
	ends_close(e);
}

CASES
{
	for (long i = 0; i < 3 * (long)(sizeof(sizes) / sizeof(*sizes)); i++)
		ADD(size, i, "%s.size-%d", kind_name((enum kind)(UDP4 + i % 3)), sizes[i / 3]);
}

UDPS("the-largest-goes-one-more-is-too-long")
{
	struct ends e = ends_of(kind);
	static char out[1 << 16], in[1 << 16];
	size_t most = kind == UDP4 ? 65507 : 65527;

	EQ(send(e.a, out, most, 0), (long)most);
	EQ(recv(e.b, in, sizeof(in), 0), (long)most);
	FAILS(send(e.a, out, most + 1, 0), EMSGSIZE);
	FAILS(send(e.a, out, 65536, 0), EMSGSIZE);
	ends_close(e);
}

CASE("unix-dgram.longer-than-the-buffer-is-too-long")
{
	struct ends e = ends_of(UNIX_DGRAM);
	static char out[1 << 20];

	set_int(e.a, SOL_SOCKET, SO_SNDBUF, 8192);
	FAILS(send(e.a, out, sizeof(out), 0), EMSGSIZE);
	ends_close(e);
}

UDPS("dont-fragment-above-the-mtu-is-too-long")
{
	struct ends e = ends_of(kind);
	static char out[1 << 17];

	set_int(e.a, kind == UDP4 ? IPPROTO_IP : IPPROTO_IPV6, kind == UDP4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
		kind == UDP4 ? IP_PMTUDISC_DO : IPV6_PMTUDISC_DO);
	int mtu = get_int(e.a, kind == UDP4 ? IPPROTO_IP : IPPROTO_IPV6, kind == UDP4 ? IP_MTU : IPV6_MTU);
	CHECK(mtu >= 1280);
	int room = mtu - (kind == UDP4 ? 28 : 48);
	if (room < 65000)
		FAILS(send(e.a, out, (size_t)room + 1, 0), EMSGSIZE);
	if (room > 65507)
		room = 65507;
	EQ(send(e.a, out, (size_t)room, 0), room);
	ends_close(e);
}

/* --- errors that come back */

UDPS("refused-comes-back-to-a-connected-one")
{
	struct ends e = ends_of(kind);
	char got[4];

	EQ(close(e.b), 0);
	EQ(send(e.a, "x", 1, 0), 1);
	NEED(wait_for(e.a, POLLIN, SOON) & POLLERR);
	FAILS(recv(e.a, got, 4, 0), ECONNREFUSED);
	/* Told once. */
	FAILS(recv(e.a, got, 4, MSG_DONTWAIT), EAGAIN);
	EQ(send(e.a, "x", 1, 0), 1);
	NEED(wait_for(e.a, POLLIN, SOON) & POLLERR);
	FAILS(send(e.a, "x", 1, 0), ECONNREFUSED);
	EQ(send(e.a, "x", 1, 0), 1);
	NEED(wait_for(e.a, POLLIN, SOON) & POLLERR);
	EQ(get_int(e.a, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
	EQ(close(e.a), 0);
}

UDPS("refused-does-not-come-back-to-an-unconnected-one")
{
	int fd = a_bound(kind), gone = a_bound(kind);
	struct name to = name_of(gone);

	EQ(close(gone), 0);
	EQ(sendto(fd, "x", 1, 0, &to.any, to.length), 1);
	CHECK(stays_quiet(fd));
	EQ(sendto(fd, "x", 1, 0, &to.any, to.length), 1);
	EQ(close(fd), 0);
}

UDPS("refused-on-the-error-queue")
{
	int fd = a_bound(kind), gone = a_bound(kind);
	struct name to = name_of(gone), about = {};
	char payload[16] = "", space[512];
	struct iovec in = {payload, sizeof(payload)};
	struct msghdr msg = {.msg_name = &about.storage, .msg_namelen = sizeof(about.storage), .msg_iov = &in,
			     .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};

	set_int(fd, kind == UDP4 ? IPPROTO_IP : IPPROTO_IPV6, kind == UDP4 ? IP_RECVERR : IPV6_RECVERR, 1);
	EQ(close(gone), 0);
	EQ(sendto(fd, "what was sent", 13, 0, &to.any, to.length), 13);
	NEED(wait_for(fd, 0, SOON) & POLLERR);
	EQ(recvmsg(fd, &msg, MSG_ERRQUEUE), 13);
	CHECK(msg.msg_flags & MSG_ERRQUEUE);
	SAME(payload, "what was sent", 13);
	SAME(&about.storage, &to.storage, 4);
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	NEED(head);
	EQ(head->cmsg_type, kind == UDP4 ? IP_RECVERR : IPV6_RECVERR);
	struct sock_extended_err error;
	memcpy(&error, CMSG_DATA(head), sizeof(error));
	EQ(error.ee_errno, ECONNREFUSED);
	EQ(error.ee_origin, kind == UDP4 ? SO_EE_ORIGIN_ICMP : SO_EE_ORIGIN_ICMP6);
	EQ(close(fd), 0);
}

CASE("unix-dgram.peer-gone-is-refused")
{
	struct ends e = ends_of(UNIX_DGRAM);

	EQ(close(e.b), 0);
	FAILS(send(e.a, "x", 1, 0), ECONNREFUSED);
	EQ(close(e.a), 0);
}

UDPS("connect-to-port-0-and-bad-addresses")
{
	int fd = a_socket(kind);
	struct name name = loopback(kind);

	name.in.sin_port = 0;
	ssize_t sent = sendto(fd, "x", 1, 0, &name.any, name.length);
	CHECK(sent == -1 && errno == EINVAL);
	EQ(sendto(fd, "x", 1, 0, &name.any, 3), -1);
	EQ(errno, EINVAL);
	EQ(close(fd), 0);
}

UDPS("sending-unbound-binds")
{
	int to = a_bound(kind), fd = a_socket(kind);
	struct name name = name_of(to), from = {.length = sizeof(from.storage)};
	char got[4];

	EQ(port_of(fd), 0);
	EQ(sendto(fd, "x", 1, 0, &name.any, name.length), 1);
	CHECK(port_of(fd) != 0);
	EQ(recvfrom(to, got, 4, 0, &from.any, &from.length), 1);
	EQ(ntohs(from.in.sin_port), port_of(fd));
	EQ(close(fd), 0);
	EQ(close(to), 0);
}

/* --- control messages */

/* Receives one octet; the payload of the control message of this type, or NULL. */
static const void *control(int fd, int level, int type)
{
	static char space[512];
	char octets[2048];
	struct iovec in = {octets, sizeof(octets)};
	struct msghdr msg = {.msg_iov = &in, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};

	NEED(is_readable(fd));
	NEED(recvmsg(fd, &msg, 0) >= 0);
	EQ(msg.msg_flags & MSG_CTRUNC, 0);
	for (struct cmsghdr *head = CMSG_FIRSTHDR(&msg); head; head = CMSG_NXTHDR(&msg, head))
		if (head->cmsg_level == level && head->cmsg_type == type)
			return CMSG_DATA(head);
	CHECKF(false, "there is no control message of level %d, type %d", level, type);
	case_end();
}

static ssize_t send_with(int fd, int level, int type, const void *data, size_t length)
{
	char space[128] = {};
	struct iovec out = {"x", 1};
	struct msghdr msg = {.msg_iov = &out, .msg_iovlen = 1, .msg_control = space,
			     .msg_controllen = CMSG_SPACE(length)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	*head = (struct cmsghdr){.cmsg_level = level, .cmsg_type = type, .cmsg_len = CMSG_LEN(length)};
	memcpy(CMSG_DATA(head), data, length);
	return sendmsg(fd, &msg, 0);
}

CASE("udp4.packet-info")
{
	struct ends e = ends_of(UDP4);
	struct in_pktinfo info;

	set_int(e.b, IPPROTO_IP, IP_PKTINFO, 1);
	EQ(send(e.a, "x", 1, 0), 1);
	memcpy(&info, control(e.b, IPPROTO_IP, IP_PKTINFO), sizeof(info));
	EQ(info.ipi_addr.s_addr, htonl(INADDR_LOOPBACK));
	EQ(info.ipi_ifindex, if_nametoindex("lo"));
	ends_close(e);
}

CASE("udp6.packet-info")
{
	struct ends e = ends_of(UDP6);
	struct in6_pktinfo info;

	set_int(e.b, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
	EQ(send(e.a, "x", 1, 0), 1);
	memcpy(&info, control(e.b, IPPROTO_IPV6, IPV6_PKTINFO), sizeof(info));
	SAME(&info.ipi6_addr, &in6addr_loopback, 16);
	ends_close(e);
}

CASE("udp4.packet-info-chooses-the-source")
{
	int to = a_bound(UDP4), fd = a_socket(UDP4);
	struct name name = name_of(to), from = {.length = sizeof(from.storage)};
	struct in_pktinfo info = {.ipi_spec_dst.s_addr = htonl(INADDR_LOOPBACK + 4)};
	char space[CMSG_SPACE(sizeof(info))] = {}, got[4];
	struct iovec out = {"x", 1};
	struct msghdr msg = {.msg_name = &name.any, .msg_namelen = name.length, .msg_iov = &out, .msg_iovlen = 1,
			     .msg_control = space, .msg_controllen = sizeof(space)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

	*head = (struct cmsghdr){.cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO, .cmsg_len = CMSG_LEN(sizeof(info))};
	memcpy(CMSG_DATA(head), &info, sizeof(info));
	EQ(sendmsg(fd, &msg, 0), 1);
	EQ(recvfrom(to, got, 4, 0, &from.any, &from.length), 1);
	EQ(from.in.sin_addr.s_addr, htonl(INADDR_LOOPBACK + 4));
	EQ(close(fd), 0);
	EQ(close(to), 0);
}

CASE("udp4.ttl-is-told-and-set-for-one")
{
	struct ends e = ends_of(UDP4);
	int ttl = 7;

	set_int(e.b, IPPROTO_IP, IP_RECVTTL, 1);
	set_int(e.a, IPPROTO_IP, IP_TTL, 33);
	EQ(send(e.a, "x", 1, 0), 1);
	EQ(*(const int *)control(e.b, IPPROTO_IP, IP_TTL), 33);
	EQ(send_with(e.a, IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl)), 1);
	EQ(*(const int *)control(e.b, IPPROTO_IP, IP_TTL), 7);
	EQ(send(e.a, "x", 1, 0), 1);
	EQ(*(const int *)control(e.b, IPPROTO_IP, IP_TTL), 33);
	ends_close(e);
}

CASE("udp4.tos-is-told-and-set-for-one")
{
	struct ends e = ends_of(UDP4);
	int tos = 0x48;

	set_int(e.b, IPPROTO_IP, IP_RECVTOS, 1);
	set_int(e.a, IPPROTO_IP, IP_TOS, 0x20);
	EQ(get_int(e.a, IPPROTO_IP, IP_TOS), 0x20);
	EQ(send(e.a, "x", 1, 0), 1);
	EQ(*(const uint8_t *)control(e.b, IPPROTO_IP, IP_TOS), 0x20);
	EQ(send_with(e.a, IPPROTO_IP, IP_TOS, &tos, sizeof(tos)), 1);
	EQ(*(const uint8_t *)control(e.b, IPPROTO_IP, IP_TOS), 0x48);
	ends_close(e);
}

CASE("udp6.hop-limit-and-class-are-told-and-set")
{
	struct ends e = ends_of(UDP6);
	int hops = 9, class = 0x28;

	set_int(e.b, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
	EQ(send_with(e.a, IPPROTO_IPV6, IPV6_HOPLIMIT, &hops, sizeof(hops)), 1);
	EQ(*(const int *)control(e.b, IPPROTO_IPV6, IPV6_HOPLIMIT), 9);
	set_int(e.b, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
	EQ(send_with(e.a, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof(class)), 1);
	EQ(*(const int *)control(e.b, IPPROTO_IPV6, IPV6_TCLASS), 0x28);
	ends_close(e);
}

DATAGRAMS("timestamp")
{
	struct ends e = ends_of(kind);
	struct timeval stamp, before, after;

	set_int(e.b, SOL_SOCKET, SO_TIMESTAMP, 1);
	gettimeofday(&before, NULL);
	EQ(send(e.a, "x", 1, 0), 1);
	memcpy(&stamp, control(e.b, SOL_SOCKET, SCM_TIMESTAMP), sizeof(stamp));
	gettimeofday(&after, NULL);
	CHECK(!timercmp(&stamp, &before, <) || before.tv_sec - stamp.tv_sec <= 1);
	CHECK(!timercmp(&stamp, &after, >));
	ends_close(e);
}

DATAGRAMS("timestamp-in-nanoseconds")
{
	struct ends e = ends_of(kind);
	struct timespec stamp;

	set_int(e.b, SOL_SOCKET, SO_TIMESTAMPNS, 1);
	EQ(send(e.a, "x", 1, 0), 1);
	memcpy(&stamp, control(e.b, SOL_SOCKET, SCM_TIMESTAMPNS), sizeof(stamp));
	CHECK(stamp.tv_sec > 1600000000);
	ends_close(e);
}

UDPS("timestamp-of-each-in-recvmmsg")
{
	struct ends e = ends_of(kind);
	char spaces[3][128], octets[3][8];
	struct iovec in[3];
	struct mmsghdr msgs[3] = {};
	struct timespec last = {};

	set_int(e.b, SOL_SOCKET, SO_TIMESTAMPNS, 1);
	for (int i = 0; i < 3; i++) {
		in[i] = (struct iovec){octets[i], 8};
		msgs[i].msg_hdr = (struct msghdr){.msg_iov = &in[i], .msg_iovlen = 1, .msg_control = spaces[i],
						  .msg_controllen = sizeof(spaces[i])};
		EQ(send(e.a, "x", 1, 0), 1);
	}
	EQ(recvmmsg(e.b, msgs, 3, 0, NULL), 3);
	for (int i = 0; i < 3; i++) {
		struct cmsghdr *head = CMSG_FIRSTHDR(&msgs[i].msg_hdr);
		struct timespec stamp;
		NEED(head && head->cmsg_type == SCM_TIMESTAMPNS);
		memcpy(&stamp, CMSG_DATA(head), sizeof(stamp));
		CHECK(stamp.tv_sec > last.tv_sec || (stamp.tv_sec == last.tv_sec && stamp.tv_nsec >= last.tv_nsec));
		last = stamp;
	}
	ends_close(e);
}

UDPS("control-message-cut-short")
{
	struct ends e = ends_of(kind);
	char space[CMSG_SPACE(0)], octets[8];
	struct iovec in = {octets, 8};
	struct msghdr msg = {.msg_iov = &in, .msg_iovlen = 1, .msg_control = space, .msg_controllen = 4};

	set_int(e.b, SOL_SOCKET, SO_TIMESTAMPNS, 1);
	EQ(send(e.a, "x", 1, 0), 1);
	EQ(recvmsg(e.b, &msg, 0), 1);
	EQ(msg.msg_flags & MSG_CTRUNC, MSG_CTRUNC);
	ends_close(e);
}

CASE("udp4.original-destination")
{
	struct ends e = ends_of(UDP4);
	struct sockaddr_in to;

	set_int(e.b, IPPROTO_IP, IP_RECVORIGDSTADDR, 1);
	EQ(send(e.a, "x", 1, 0), 1);
	memcpy(&to, control(e.b, IPPROTO_IP, IP_ORIGDSTADDR), sizeof(to));
	EQ(ntohs(to.sin_port), port_of(e.b));
	ends_close(e);
}

UDPS("control-message-of-none-is-refused")
{
	struct ends e = ends_of(kind);
	int value = 1;

	EQ(send_with(e.a, IPPROTO_IP, 9999, &value, sizeof(value)), kind == UDP4 ? -1 : 1);
	if (kind == UDP4)
		EQ(errno, EINVAL);
	EQ(send_with(e.a, IPPROTO_UDP, 9999, &value, sizeof(value)), -1);
	EQ(errno, EINVAL);
	ends_close(e);
}

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

/* --- groups and broadcast */

CASE("udp4.broadcast-needs-the-flag")
{
	int fd = a_socket(UDP4);
	struct sockaddr_in all = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = INADDR_BROADCAST};

	EQ(get_int(fd, SOL_SOCKET, SO_BROADCAST), 0);
	EQ(sendto(fd, "x", 1, 0, (struct sockaddr *)&all, sizeof(all)), -1);
	CHECK(errno == EACCES || errno == ENETUNREACH);
	set_int(fd, SOL_SOCKET, SO_BROADCAST, 1);
	EQ(get_int(fd, SOL_SOCKET, SO_BROADCAST), 1);
	EQ(close(fd), 0);
}

CASE("udp4.multicast-on-loopback")
{
	int to = a_socket(UDP4), from = a_socket(UDP4);
	struct sockaddr_in group = {.sin_family = AF_INET};
	struct ip_mreqn join = {.imr_ifindex = (int)if_nametoindex("lo")};
	char got[8];

	NEED(inet_pton(AF_INET, "239.255.1.2", &group.sin_addr) == 1);
	join.imr_multiaddr = group.sin_addr;
	set_int(to, SOL_SOCKET, SO_REUSEADDR, 1);
	NEED(bind(to, (struct sockaddr *)&group, sizeof(group)) == 0);
	group.sin_port = htons((uint16_t)port_of(to));
	EQ(setsockopt(to, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof(join)), 0);
	FAILS(setsockopt(to, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof(join)), EADDRINUSE);
	EQ(setsockopt(from, IPPROTO_IP, IP_MULTICAST_IF, &join, sizeof(join)), 0);
	EQ(sendto(from, "group", 5, 0, (struct sockaddr *)&group, sizeof(group)), 5);
	NEED(is_readable(to));
	EQ(recv(to, got, 8, 0), 5);
	set_int(from, IPPROTO_IP, IP_MULTICAST_TTL, 3);
	EQ(get_int(from, IPPROTO_IP, IP_MULTICAST_TTL), 3);
	EQ(setsockopt(to, IPPROTO_IP, IP_DROP_MEMBERSHIP, &join, sizeof(join)), 0);
	FAILS(setsockopt(to, IPPROTO_IP, IP_DROP_MEMBERSHIP, &join, sizeof(join)), EADDRNOTAVAIL);
	EQ(close(to), 0);
	EQ(close(from), 0);
}

CASE("udp6.multicast-on-loopback")
{
	int to = a_bound(UDP6), from = a_socket(UDP6);
	struct sockaddr_in6 group = {.sin6_family = AF_INET6}, any = {.sin6_family = AF_INET6};
	struct ipv6_mreq join = {.ipv6mr_interface = if_nametoindex("lo")};
	unsigned lo = join.ipv6mr_interface;
	char got[8];

	EQ(close(to), 0);
	to = a_socket(UDP6);
	NEED(bind(to, (struct sockaddr *)&any, sizeof(any)) == 0);
	NEED(inet_pton(AF_INET6, "ff01::1:77", &group.sin6_addr) == 1);
	join.ipv6mr_multiaddr = group.sin6_addr;
	group.sin6_port = htons((uint16_t)port_of(to));
	group.sin6_scope_id = lo;
	NEED(setsockopt(to, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join, sizeof(join)) == 0);
	NEED(setsockopt(from, IPPROTO_IPV6, IPV6_MULTICAST_IF, &lo, sizeof(lo)) == 0);
	ssize_t sent = sendto(from, "group", 5, 0, (struct sockaddr *)&group, sizeof(group));
	if (sent < 0 && (errno == ENETUNREACH || errno == EADDRNOTAVAIL))
		SKIP("this machine has no route to IPv6 groups (%s)", strerror(errno));
	EQ(sent, 5);
	NEED(is_readable(to));
	EQ(recv(to, got, 8, 0), 5);
	EQ(setsockopt(to, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &join, sizeof(join)), 0);
	EQ(close(to), 0);
	EQ(close(from), 0);
}

UDPS("reuseport-shares-by-sender")
{
	int group[3], from[12], taken = 0;
	struct name name = loopback(kind);
	char got[4];

	for (int i = 0; i < 3; i++) {
		group[i] = a_socket(kind);
		set_int(group[i], SOL_SOCKET, SO_REUSEPORT, 1);
		NEED(bind(group[i], &name.any, name.length) == 0);
		name = name_of(group[0]);
	}
	for (int i = 0; i < 12; i++) {
		from[i] = a_bound(kind);
		/* Two of one sender go to one member. */
		EQ(sendto(from[i], "x", 1, 0, &name.any, name.length), 1);
		EQ(sendto(from[i], "y", 1, 0, &name.any, name.length), 1);
	}
	for (int i = 0; i < 3; i++) {
		int count = 0;
		while (recv(group[i], got, 4, MSG_DONTWAIT) > 0)
			count++;
		EQ(count % 2, 0);
		taken += count;
		EQ(close(group[i]), 0);
	}
	EQ(taken, 24);
	for (int i = 0; i < 12; i++)
		EQ(close(from[i]), 0);
}

UDPS("a-full-receiver-drops")
{
	struct ends e = ends_of(kind);
	char octets[1000], got[1000];
	int count = 0;

	set_int(e.b, SOL_SOCKET, SO_RCVBUF, 4096);
	for (int i = 0; i < 200; i++)
		EQ(send(e.a, octets, sizeof(octets), 0), (long)sizeof(octets));
	while (recv(e.b, got, sizeof(got), MSG_DONTWAIT) > 0)
		count++;
	CHECK(count > 0 && count < 200);
	/* The next comes through. */
	EQ(send(e.a, "x", 1, 0), 1);
	EQ(recv(e.b, got, sizeof(got), 0), 1);
	ends_close(e);
}

UDPS("confirm-dontroute-and-proxied-flags")
{
	struct ends e = ends_of(kind);
	char got[4];

	EQ(send(e.a, "x", 1, MSG_CONFIRM), 1);
	EQ(recv(e.b, got, 4, 0), 1);
	EQ(send(e.a, "x", 1, MSG_DONTROUTE), 1);
	EQ(recv(e.b, got, 4, 0), 1);
	ends_close(e);
}

UDPS("peek-offset")
{
	struct ends e = ends_of(kind);
	char got[8];
	int offset = 2;

	EQ(send(e.a, "abcdef", 6, 0), 6);
	if (setsockopt(e.b, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof(offset)) != 0)
		SKIP("this kernel has no SO_PEEK_OFF for UDP");
	EQ(recv(e.b, got, 2, MSG_PEEK), 2);
	SAME(got, "cd", 2);
	EQ(recv(e.b, got, 2, MSG_PEEK), 2);
	SAME(got, "ef", 2);
	EQ(recv(e.b, got, 8, 0), 6);
	ends_close(e);
}
