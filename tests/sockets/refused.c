/* Errors that come back to the senders of datagrams, and addresses that are none. */
#include "env.h"

#include <linux/errqueue.h>

/* A socket that is connected to where nobody is; and what keeps it so. */
static struct ends without_a_peer(long kind)
{
	for (;;) {
		struct ends e = ends_of(kind);
		if ((e.b = close_and_keep(kind, e.b)) >= 0)
			return e;
		EQ(close(e.a), 0);
	}
}

/* An address where nobody is; and what keeps it so. */
static int nobody(long kind, struct name *name)
{
	int keeper;

	while ((keeper = close_and_keep(kind, a_bound(kind))) < 0)
		;
	*name = name_of(keeper);
	return keeper;
}

UDPS("refused-comes-back-to-a-connected-one")
{
	struct ends e = without_a_peer(kind);
	char got[4];

	EQ(send(e.a, "x", 1, 0), 1);
	NEED(wait_for(e.a, POLLIN, patience) & POLLERR);
	FAILS(recv(e.a, got, 4, 0), ECONNREFUSED);
	/* Told once. */
	FAILS(recv(e.a, got, 4, MSG_DONTWAIT), EAGAIN);
	EQ(send(e.a, "x", 1, 0), 1);
	NEED(wait_for(e.a, POLLIN, patience) & POLLERR);
	FAILS(send(e.a, "x", 1, 0), ECONNREFUSED);
	EQ(send(e.a, "x", 1, 0), 1);
	NEED(wait_for(e.a, POLLIN, patience) & POLLERR);
	EQ(get_int(e.a, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
	ends_close(e);
}

UDPS("refused-does-not-come-back-to-an-unconnected-one")
{
	struct name to;
	int fd = a_bound(kind), gone = nobody(kind, &to);

	EQ(sendto(fd, "x", 1, 0, &to.any, to.length), 1);
	CHECK(stays_quiet(fd));
	EQ(sendto(fd, "x", 1, 0, &to.any, to.length), 1);
	EQ(close(fd), 0);
	EQ(close(gone), 0);
}

UDPS("refused-on-the-error-queue")
{
	struct name to, about = {};
	int fd = a_bound(kind), gone = nobody(kind, &to);
	char payload[16] = "", space[512];
	struct iovec in = {payload, sizeof(payload)};
	struct msghdr msg = {.msg_name = &about.storage, .msg_namelen = sizeof(about.storage), .msg_iov = &in,
			     .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};

	set_int(fd, kind == UDP4 ? IPPROTO_IP : IPPROTO_IPV6, kind == UDP4 ? IP_RECVERR : IPV6_RECVERR, 1);
	EQ(sendto(fd, "what was sent", 13, 0, &to.any, to.length), 13);
	NEED(wait_for(fd, 0, patience) & POLLERR);
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
	EQ(close(gone), 0);
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
