/* Options: those of SOL_RDMA, and those of sockets. */
#include "env.h"

static const int numbers[] = {RDMA_SQSIZE, RDMA_RQSIZE, RDMA_INLINE, RDMA_IOMAPSIZE};
enum { NUMBERS = sizeof(numbers) / sizeof(*numbers) };

CASE("options.there-are-sizes-from-the-beginning")
{
	int fd = an_rsocket(AF_INET);

	CHECK(get_int(fd, SOL_RDMA, RDMA_SQSIZE) > 0);
	CHECK(get_int(fd, SOL_RDMA, RDMA_RQSIZE) > 0);
	CHECK(get_int(fd, SOL_RDMA, RDMA_INLINE) > 0);
	EQ(get_int(fd, SOL_RDMA, RDMA_IOMAPSIZE), 0);
}

CASE("options.sizes-are-kept")
{
	int fd = an_rsocket(AF_INET), other = an_rsocket(AF_INET);

	for (int i = 0; i < NUMBERS; i++) {
		int value = 11 + i, before = get_int(other, SOL_RDMA, numbers[i]);
		EQ(rsetsockopt(fd, SOL_RDMA, numbers[i], &value, sizeof(value)), 0);
		EQ(get_int(other, SOL_RDMA, numbers[i]), before);
	}
	for (int i = 0; i < NUMBERS; i++)
		EQ(get_int(fd, SOL_RDMA, numbers[i]), 11 + i);
}

CASE("options.sizes-are-bounded")
{
	int fd = an_rsocket(AF_INET), huge = 1 << 24;

	for (int i = 0; i < NUMBERS; i++) {
		EQ(rsetsockopt(fd, SOL_RDMA, numbers[i], &huge, sizeof(huge)), 0);
		int got = get_int(fd, SOL_RDMA, numbers[i]);
		CHECKF(got > 1000 && got < 65536, "option %d is %d", numbers[i], got);
	}
	/* Above 128 in steps of 256. */
	int odd = 700;
	EQ(rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &odd, sizeof(odd)), 0);
	EQ(get_int(fd, SOL_RDMA, RDMA_IOMAPSIZE), 512);
}

CASE("options.sizes-are-inherited-by-what-is-accepted")
{
	int listener = an_rsocket(AF_INET), fd = an_rsocket(AF_INET);
	struct name n = loopback(AF_INET);

	for (int i = 0; i < NUMBERS; i++) {
		int value = 21 + i;
		EQ(rsetsockopt(listener, SOL_RDMA, numbers[i], &value, sizeof(value)), 0);
	}
	NEED(rbind(listener, &n.any, n.length) == 0 && rlisten(listener, 1) == 0);
	n = name_of(listener);
	EQ(rconnect(fd, &n.any, n.length), 0);
	int accepted = raccept(listener, NULL, NULL);
	for (int i = 0; i < NUMBERS; i++)
		EQ(get_int(accepted, SOL_RDMA, numbers[i]), 21 + i);
}

CASE("options.sizes-are-for-what-is-not-connected")
{
	struct ends e = ends_of(AF_INET);
	int value = 7;

	for (int i = 0; i < NUMBERS; i++) {
		FAILS(rsetsockopt(e.a, SOL_RDMA, numbers[i], &value, sizeof(value)), EINVAL);
		FAILS(rsetsockopt(e.b, SOL_RDMA, numbers[i], &value, sizeof(value)), EINVAL);
	}
	ends_close(e);
}

/* riostream sets a listener's when that listens already. */
CASE("options.sizes-of-a-listener-are-for-what-it-accepts-from-then-on")
{
	struct ends e = ends_of(AF_INET);
	struct name n = name_of(e.listener);
	int fd = an_rsocket(AF_INET);

	for (int i = 0; i < NUMBERS; i++) {
		int value = 31 + i;
		EQ(rsetsockopt(e.listener, SOL_RDMA, numbers[i], &value, sizeof(value)), 0);
		CHECK(get_int(e.b, SOL_RDMA, numbers[i]) != value);
	}
	EQ(rconnect(fd, &n.any, n.length), 0);
	int accepted = raccept(e.listener, NULL, NULL);
	NEED(accepted >= 0);
	for (int i = 0; i < NUMBERS; i++)
		EQ(get_int(accepted, SOL_RDMA, numbers[i]), 31 + i);
	ends_close(e);
}

CASE("options.what-is-none-is-refused")
{
	int fd = an_rsocket(AF_INET), value = 7;
	socklen_t length = 2;

	FAILS(rsetsockopt(fd, SOL_RDMA, 99, &value, sizeof(value)), ENOPROTOOPT);
	FAILS(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, 2), EINVAL);
	FAILS(rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, (void *)8, sizeof(value)), EFAULT);
	FAILS(rgetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, &length), EINVAL);
	length = sizeof(value);
	FAILS(rgetsockopt(fd, SOL_RDMA, 99, &value, &length), ENOPROTOOPT);
	FAILS(rgetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, (void *)8, &length), EFAULT);
}

/* Routes are of InfiniBand: there are none, and one that is set changes nothing. */
CASE("options.there-are-no-routes")
{
	struct ends e = ends_of(AF_INET);
	char route[72] = "";
	socklen_t length = sizeof(route);
	int fd = an_rsocket(AF_INET);

	EQ(rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, route, sizeof(route)), 0);
	EQ(rgetsockopt(e.a, SOL_RDMA, RDMA_ROUTE, route, &length), 0);
	EQ(length, 0);
	ends_close(e);
}

CASE("options.those-of-sockets-are-the-kernels")
{
	struct ends e = ends_of(AF_INET);
	int on = 1, room = 100000;

	EQ(get_int(e.a, IPPROTO_TCP, TCP_NODELAY), 0);
	EQ(rsetsockopt(e.a, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
	EQ(get_int(e.a, IPPROTO_TCP, TCP_NODELAY), 1);
	EQ(rsetsockopt(e.a, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)), 0);
	EQ(get_int(e.a, SOL_SOCKET, SO_KEEPALIVE), 1);
	EQ(rsetsockopt(e.a, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
	CHECK(get_int(e.a, SOL_SOCKET, SO_SNDBUF) >= room);
	EQ(get_int(e.a, SOL_SOCKET, SO_ERROR), 0);
	EQ(get_int(e.listener, SOL_SOCKET, SO_ACCEPTCONN), 1);
	int fd = an_rsocket(AF_INET6);
	EQ(rsetsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)), 0);
	EQ(get_int(fd, IPPROTO_IPV6, IPV6_V6ONLY), 1);
	ends_close(e);
}

CASE("options.flags-are-got-and-set")
{
	int fd = an_rsocket(AF_INET);

	EQ(rfcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	EQ(rfcntl(fd, F_SETFL, O_NONBLOCK), 0);
	CHECK(rfcntl(fd, F_GETFL) & O_NONBLOCK);
	FAILS(rfcntl(fd, 9999), EINVAL);
}
