/* Control messages of datagrams. */
#include "env.h"

#include <net/if.h>

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
