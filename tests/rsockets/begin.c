/* Rsockets made, named, connected. */
#include "env.h"

#include "../../abi/include/weft/sockets.h"

FAMILIES("begin.an-rsocket-is-a-tcp-socket")
{
	int fd = an_rsocket(family);

	EQ(get_int(fd, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
	EQ(get_int(fd, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
	EQ(rclose(fd), 0);
}

CASE("begin.the-protocol-may-be-named")
{
	int fd = rsocket(AF_INET, SOCK_STREAM, IPPROTO_TCP);

	CHECK(fd >= 0);
	EQ(rclose(fd), 0);
}

CASE("begin.other-families-types-and-protocols-are-refused")
{
	FAILS(rsocket(AF_UNIX, SOCK_STREAM, 0), EOPNOTSUPP);
	FAILS(rsocket(AF_INET, SOCK_DGRAM, 0), EOPNOTSUPP);
	FAILS(rsocket(AF_INET, SOCK_RAW, 0), EOPNOTSUPP);
	FAILS(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EOPNOTSUPP);
}

/* Every function, of a descriptor that is no rsocket. */
static void refuse_all(int fd)
{
	struct name n = loopback(AF_INET);
	struct iovec v = {};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	char octet = 0;
	int value = 0;
	socklen_t length = sizeof(value);

	FAILS(rbind(fd, &n.any, n.length), EBADF);
	FAILS(rlisten(fd, 1), EBADF);
	FAILS(raccept(fd, NULL, NULL), EBADF);
	FAILS(rconnect(fd, &n.any, n.length), EBADF);
	FAILS(rshutdown(fd, SHUT_RDWR), EBADF);
	FAILS(rrecv(fd, &octet, 1, MSG_DONTWAIT), EBADF);
	FAILS(rrecvfrom(fd, &octet, 1, MSG_DONTWAIT, NULL, NULL), EBADF);
	FAILS(rrecvmsg(fd, &m, MSG_DONTWAIT), EBADF);
	FAILS(rsend(fd, "", 1, MSG_DONTWAIT), EBADF);
	FAILS(rsendto(fd, "", 1, MSG_DONTWAIT, NULL, 0), EBADF);
	FAILS(rsendmsg(fd, &m, MSG_DONTWAIT), EBADF);
	FAILS(rread(fd, &octet, 1), EBADF);
	FAILS(rreadv(fd, &v, 1), EBADF);
	FAILS(rwrite(fd, "", 1), EBADF);
	FAILS(rwritev(fd, &v, 1), EBADF);
	FAILS(rgetpeername(fd, &n.any, &n.length), EBADF);
	FAILS(rgetsockname(fd, &n.any, &n.length), EBADF);
	FAILS(rsetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof(value)), EBADF);
	FAILS(rgetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length), EBADF);
	FAILS(rfcntl(fd, F_GETFL), EBADF);
	FAILS(riomap(fd, &octet, 1, PROT_WRITE, 0, 0), EBADF);
	FAILS(riounmap(fd, &octet, 1), EBADF);
	FAILS(riowrite(fd, &octet, 1, 0, 0), EBADF);
	FAILS(rclose(fd), EBADF);
}

CASE("begin.what-is-no-rsocket-is-a-bad-descriptor")
{
	int pair[2];
	int plain = socket(AF_INET, SOCK_STREAM, 0);

	NEED(pipe(pair) == 0 && plain >= 0);
	/* Before the first rsocket, and after it. */
	refuse_all(plain);
	EQ(rclose(an_rsocket(AF_INET)), 0);
	refuse_all(plain);
	refuse_all(pair[0]);
	refuse_all(-1);
	refuse_all(1 << 20);
	EQ(fcntl(plain, F_GETFD), 0);
}

CASE("begin.a-closed-rsocket-is-a-bad-descriptor")
{
	int fd = an_rsocket(AF_INET);

	EQ(rclose(fd), 0);
	refuse_all(fd);
}

/* It lies on the stack of every thread of the process, those of Weft among them. */
static __thread char thread_local[250 << 10] = "far more than most programs have";

CASE("begin.a-program-may-have-much-thread-local-memory")
{
	struct ends e = ends_of(AF_INET);

	thread_local[sizeof(thread_local) - 1] = 1;
	talks(e.a, e.b);
	/* What the thread does that answers questions it does a little later. */
	sleep_ms(QUIET);
	talks(e.b, e.a);
	EQ(thread_local[sizeof(thread_local) - 1], 1);
	ends_close(e);
}

FAMILIES("begin.two-ends-talk")
{
	struct ends e = ends_of(family);

	talks(e.a, e.b);
	talks(e.b, e.a);
	ends_close(e);
}

FAMILIES("begin.each-end-knows-both-names")
{
	struct ends e = ends_of(family);
	struct name own = name_of(e.a), peers = {.length = sizeof(peers.in6)};

	EQ(rgetpeername(e.b, &peers.any, &peers.length), 0);
	EQ(peers.length, own.length);
	SAME(&peers.any, &own.any, own.length);
	own = name_of(e.b);
	peers.length = sizeof(peers.in6);
	EQ(rgetpeername(e.a, &peers.any, &peers.length), 0);
	SAME(&peers.any, &own.any, own.length);
	ends_close(e);
}

CASE("begin.accept-tells-who-came")
{
	struct name n = name_of(a_listener(AF_INET)), from = {.length = sizeof(from.in6)};
	int listener = a_listener(AF_INET), fd = an_rsocket(AF_INET);

	n = name_of(listener);
	EQ(rconnect(fd, &n.any, n.length), 0);
	int accepted = raccept(listener, &from.any, &from.length);
	CHECK(accepted >= 0);
	n = name_of(fd);
	EQ(from.in.sin_port, n.in.sin_port);
	EQ(from.length, sizeof(from.in));
}

CASE("begin.it-goes-over-ddp")
{
	struct ends e = ends_of(AF_INET);
	struct weft_ddp ddp = {};
	socklen_t length = sizeof(ddp);

	talks(e.a, e.b);
	for (int end = 0; end < 2; end++) {
		EQ(rgetsockopt(end ? e.a : e.b, SOL_WEFT, WEFT_SO_DDP, &ddp, &length), 0);
		EQ(ddp.mode, WEFT_DDP_REQUIRE);
		EQ(ddp.state, WEFT_DDP_STATE_DDP);
	}
	ends_close(e);
}

CASE("begin.a-server-sees-an-mpa-request")
{
	struct name n = loopback(AF_INET);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = an_rsocket(AF_INET);
	char seen[16] = "";

	NEED(bind(listener, &n.any, n.length) == 0 && listen(listener, 1) == 0);
	NEED(getsockname(listener, &n.any, &n.length) == 0);
	EQ(rconnect(fd, &n.any, n.length), 0);
	int accepted = accept(listener, NULL, NULL);
	NEED(accepted >= 0);
	EQ(recv(accepted, seen, sizeof(seen), MSG_WAITALL), sizeof(seen));
	SAME(seen, "MPA ID Req Frame", sizeof(seen));
}

CASE("begin.a-plain-client-of-a-listener-is-served-as-tcp")
{
	int listener = a_listener(AF_INET), plain = socket(AF_INET, SOCK_STREAM, 0);
	struct name n = name_of(listener);
	char octets[4] = "";

	NEED(connect(plain, &n.any, n.length) == 0);
	int accepted = raccept(listener, NULL, NULL);
	NEED(accepted >= 0);
	EQ(send(plain, "ping", 4, 0), 4);
	EQ(rrecv(accepted, octets, 4, MSG_WAITALL), 4);
	SAME(octets, "ping", 4);
	EQ(rsend(accepted, "pong", 4, 0), 4);
	EQ(recv(plain, octets, 4, MSG_WAITALL), 4);
	SAME(octets, "pong", 4);
}

CASE("begin.nobody-there-is-refused")
{
	int listener = a_listener(AF_INET), fd = an_rsocket(AF_INET);
	struct name n = name_of(listener);

	/* The port stays ours: a connected socket has it. */
	int first = an_rsocket(AF_INET);
	EQ(rconnect(first, &n.any, n.length), 0);
	int accepted = raccept(listener, NULL, NULL);
	EQ(rclose(listener), 0);
	FAILS(rconnect(fd, &n.any, n.length), ECONNREFUSED);
	talks(first, accepted);
}

CASE("begin.a-connect-need-not-wait")
{
	int listener = a_listener(AF_INET), fd = an_rsocket(AF_INET);
	struct name n = name_of(listener);

	set_nonblocking(fd, true);
	int status = rconnect(fd, &n.any, n.length);
	CHECK(status == 0 || errno == EINPROGRESS);
	CHECK(wait_for(fd, POLLOUT, patience) & POLLOUT);
	EQ(get_int(fd, SOL_SOCKET, SO_ERROR), 0);
	int accepted = raccept(listener, NULL, NULL);
	set_nonblocking(fd, false);
	talks(fd, accepted);
	talks(accepted, fd);
}

CASE("begin.connect-and-the-first-octets-do-not-wait-for-accept")
{
	int listener = a_listener(AF_INET), fd = an_rsocket(AF_INET);
	struct name n = name_of(listener);
	char octets[3] = "";
	double begun = now();

	EQ(rconnect(fd, &n.any, n.length), 0);
	EQ(rsend(fd, "abc", 3, 0), 3);
	CHECKF(now() - begun < 1, "it took %.1f s", now() - begun);
	int accepted = raccept(listener, NULL, NULL);
	EQ(rrecv(accepted, octets, 3, MSG_WAITALL), 3);
	SAME(octets, "abc", 3);
}

CASE("begin.an-accept-need-not-wait")
{
	int listener = a_listener(AF_INET), fd = an_rsocket(AF_INET);
	struct name n = name_of(listener);

	set_nonblocking(listener, true);
	FAILS(raccept(listener, NULL, NULL), EAGAIN);
	EQ(rconnect(fd, &n.any, n.length), 0);
	CHECK(wait_for(listener, POLLIN, patience) & POLLIN);
	int accepted = raccept(listener, NULL, NULL);
	CHECK(accepted >= 0);
	talks(fd, accepted);
}

CASE("begin.an-address-is-taken-once")
{
	struct name n = name_of(a_listener(AF_INET));

	FAILS(rbind(an_rsocket(AF_INET), &n.any, n.length), EADDRINUSE);
}

CASE("begin.a-hundred-connections-come-and-go")
{
	int listener = a_listener(AF_INET);
	struct name n = name_of(listener);

	for (int i = 0; i < 100; i++) {
		int fd = an_rsocket(AF_INET);
		EQ(rconnect(fd, &n.any, n.length), 0);
		int accepted = raccept(listener, NULL, NULL);
		NEED(accepted >= 0);
		talks(fd, accepted);
		EQ(rclose(i % 2 ? fd : accepted), 0);
		EQ(rclose(i % 2 ? accepted : fd), 0);
	}
}
