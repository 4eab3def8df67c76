/* Datagrams to groups, by broadcast, and to sockets that share a port. */
#include "env.h"

#include <net/if.h>

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
	int group[3], from[12], counts[3] = {}, taken = 0;
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
	for (double end = deadline(); taken < 24 && now() < end;)
		for (int i = 0; i < 3; i++)
			while (recv(group[i], got, 4, MSG_DONTWAIT) > 0) {
				counts[i]++;
				taken++;
			}
	for (int i = 0; i < 3; i++) {
		EQ(counts[i] % 2, 0);
		EQ(close(group[i]), 0);
	}
	EQ(taken, 24);
	for (int i = 0; i < 12; i++)
		EQ(close(from[i]), 0);
}
