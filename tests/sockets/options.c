/* Options of every socket: what was set is read back, what is wrong is refused. */
#include "env.h"

#include <linux/filter.h>

static const struct {
	const char *name;
	int option, set, want;
} plain[] = {
	{"reuseaddr", SO_REUSEADDR, 1, 1},   {"reuseport", SO_REUSEPORT, 1, 1}, {"keepalive", SO_KEEPALIVE, 1, 1},
	{"broadcast", SO_BROADCAST, 1, 1},   {"dontroute", SO_DONTROUTE, 1, 1}, {"oobinline", SO_OOBINLINE, 1, 1},
	{"timestamp", SO_TIMESTAMP, 1, 1},   {"priority", SO_PRIORITY, 3, 3},	{"rcvlowat", SO_RCVLOWAT, 100, 100},
	{"rxq-ovfl", SO_RXQ_OVFL, 1, 1},     {"busy-poll", SO_BUSY_POLL, 0, 0},	{"incoming-cpu", SO_INCOMING_CPU, 0, 0},
	{"no-check", SO_NO_CHECK, 1, 1},
};

static void read_back(long both)
{
	long kind = both % KINDS, at = both / KINDS;
	int fd = a_socket(kind);

	if (plain[at].option == SO_REUSEPORT && kind_family((enum kind)kind) == AF_UNIX) {
		int on = 1;
		/* Refused since Linux 6.13. */
		if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0) {
			EQ(errno, EOPNOTSUPP);
			return;
		}
	}
	set_int(fd, SOL_SOCKET, plain[at].option, plain[at].set);
	EQ(get_int(fd, SOL_SOCKET, plain[at].option), plain[at].want);
	EQ(close(fd), 0);
}

CASES
{
	for (long i = 0; i < KINDS * (long)(sizeof(plain) / sizeof(*plain)); i++)
		ADD(read_back, i, "%s.option-%s-is-read-back", kind_name((enum kind)(i % KINDS)), plain[i / KINDS].name);
}

SOCKETS("option.buffers-are-doubled")
{
	int fd = a_socket(kind);

	set_int(fd, SOL_SOCKET, SO_SNDBUF, 20000);
	EQ(get_int(fd, SOL_SOCKET, SO_SNDBUF), 40000);
	set_int(fd, SOL_SOCKET, SO_RCVBUF, 20000);
	EQ(get_int(fd, SOL_SOCKET, SO_RCVBUF), 40000);
	/* No smaller than the least. */
	set_int(fd, SOL_SOCKET, SO_RCVBUF, 1);
	CHECK(get_int(fd, SOL_SOCKET, SO_RCVBUF) >= 256);
	EQ(close(fd), 0);
}

SOCKETS("option.read-only-ones-are-refused")
{
	int fd = a_socket(kind), value = 1;

	FAILS(setsockopt(fd, SOL_SOCKET, SO_TYPE, &value, sizeof(value)), ENOPROTOOPT);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_ERROR, &value, sizeof(value)), ENOPROTOOPT);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, sizeof(value)), ENOPROTOOPT);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, sizeof(value)), ENOPROTOOPT);
	EQ(close(fd), 0);
}

SOCKETS("option.of-none-is-refused")
{
	int fd = a_socket(kind), value = 1;
	socklen_t length = sizeof(value);

	FAILS(setsockopt(fd, SOL_SOCKET, 9999, &value, sizeof(value)), ENOPROTOOPT);
	FAILS(getsockopt(fd, SOL_SOCKET, 9999, &value, &length), ENOPROTOOPT);
	EQ(setsockopt(fd, 9999, 1, &value, sizeof(value)), -1);
	CHECK(errno == ENOPROTOOPT || errno == EOPNOTSUPP);
	EQ(close(fd), 0);
}

SOCKETS("option.of-a-wrong-size")
{
	int fd = a_socket(kind), value = 1;
	socklen_t length = 2;
	unsigned char got[8];

	FAILS(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, 2), EINVAL);
	FAILS(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, (void *)8, sizeof(value)), EFAULT);
	set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	/* Less room: cut. */
	memset(got, 0xee, sizeof(got));
	EQ(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, got, &length), 0);
	EQ(length, 2);
	EQ(got[0], 1);
	EQ(got[2], 0xee);
	/* More room: only what there is. */
	length = 8;
	EQ(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, got, &length), 0);
	EQ(length, 4);
	EQ(close(fd), 0);
}

SOCKETS("option.device-is-told")
{
	int fd = a_socket(kind);
	char name[16] = "zzz";
	socklen_t length = sizeof(name);

	EQ(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length), 0);
	EQ(length, 0);
	EQ(close(fd), 0);
}

SOCKETS("option.cookie-is-of-the-socket")
{
	struct ends e = ends_of(kind);
	uint64_t one = 0, two = 0, copied = 0;
	socklen_t length = sizeof(one);
	int copy = dup(e.a);

	if (getsockopt(e.a, SOL_SOCKET, SO_COOKIE, &one, &length) != 0)
		SKIP("this kernel has no SO_COOKIE");
	EQ(getsockopt(e.b, SOL_SOCKET, SO_COOKIE, &two, &length), 0);
	EQ(getsockopt(copy, SOL_SOCKET, SO_COOKIE, &copied, &length), 0);
	CHECK(one && one != two);
	EQ(copied, one);
	EQ(close(copy), 0);
	ends_close(e);
}

UDPS("option.filter-drops")
{
	struct ends e = ends_of(kind);
	struct sock_filter none[] = {{BPF_RET | BPF_K, 0, 0, 0}}, all[] = {{BPF_RET | BPF_K, 0, 0, 0xffff}};
	struct sock_fprog drop = {1, none}, keep = {1, all};
	char got[4];

	EQ(setsockopt(e.b, SOL_SOCKET, SO_ATTACH_FILTER, &drop, sizeof(drop)), 0);
	EQ(send(e.a, "x", 1, 0), 1);
	CHECK(stays_quiet(e.b));
	EQ(setsockopt(e.b, SOL_SOCKET, SO_ATTACH_FILTER, &keep, sizeof(keep)), 0);
	EQ(send(e.a, "x", 1, 0), 1);
	EQ(recv(e.b, got, 4, 0), 1);
	set_int(e.b, SOL_SOCKET, SO_DETACH_FILTER, 0);
	ends_close(e);
}

SOCKETS("option.error-of-none")
{
	struct ends e = ends_of(kind);

	EQ(get_int(e.a, SOL_SOCKET, SO_ERROR), 0);
	ends_close(e);
}

SOCKETS("option.passes-to-a-copy")
{
	struct ends e = ends_of(kind);
	int copy = dup(e.a);

	set_int(copy, SOL_SOCKET, SO_PRIORITY, 5);
	EQ(get_int(e.a, SOL_SOCKET, SO_PRIORITY), 5);
	EQ(close(copy), 0);
	ends_close(e);
}

static const struct {
	const char *name;
	int level, option, set, want;
} internet[] = {
	{"4-ttl", IPPROTO_IP, IP_TTL, 44, 44},
	{"4-tos", IPPROTO_IP, IP_TOS, 0x10, 0x10},
	{"4-pktinfo", IPPROTO_IP, IP_PKTINFO, 1, 1},
	{"4-recvttl", IPPROTO_IP, IP_RECVTTL, 1, 1},
	{"4-recverr", IPPROTO_IP, IP_RECVERR, 1, 1},
	{"4-mtu-discover", IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO, IP_PMTUDISC_DO},
	{"4-freebind", IPPROTO_IP, IP_FREEBIND, 1, 1},
	{"4-multicast-ttl", IPPROTO_IP, IP_MULTICAST_TTL, 5, 5},
	{"4-multicast-loop", IPPROTO_IP, IP_MULTICAST_LOOP, 0, 0},
	{"4-multicast-all", IPPROTO_IP, IP_MULTICAST_ALL, 0, 0},
	{"4-bind-address-no-port", IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1, 1},
	{"6-v6only", IPPROTO_IPV6, IPV6_V6ONLY, 1, 1},
	{"6-unicast-hops", IPPROTO_IPV6, IPV6_UNICAST_HOPS, 44, 44},
	{"6-tclass", IPPROTO_IPV6, IPV6_TCLASS, 0x10, 0x10},
	{"6-recvpktinfo", IPPROTO_IPV6, IPV6_RECVPKTINFO, 1, 1},
	{"6-recvhoplimit", IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1, 1},
	{"6-recverr", IPPROTO_IPV6, IPV6_RECVERR, 1, 1},
	{"6-multicast-hops", IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 5, 5},
};

static void internet_option(long at)
{
	int fd = a_socket(internet[at].name[0] == '4' ? UDP4 : UDP6);

	set_int(fd, internet[at].level, internet[at].option, internet[at].set);
	EQ(get_int(fd, internet[at].level, internet[at].option), internet[at].want);
	EQ(close(fd), 0);
}

CASES
{
	for (long i = 0; i < (long)(sizeof(internet) / sizeof(*internet)); i++)
		ADD(internet_option, i, "udp%c.option-%s-is-read-back", internet[i].name[0], internet[i].name + 2);
}
