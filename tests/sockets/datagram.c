/* Datagrams: boundaries, addresses, sizes. */
#include "env.h"

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
	NEED(is_readable(e.b));
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

static void *send_now_and_then(void *at)
{
	for (int i = 0; i < 20; i++) {
		sleep_ms(5);
		send(*(int *)at, "short", 5, 0);
	}
	return NULL;
}

DATAGRAMS("a-short-one-that-is-waited-for-leaves-the-rest-of-the-buffer")
{
	struct ends e = ends_of(kind);
	char got[200], rest[200];
	pthread_t thread;

	memset(rest, 'z', sizeof rest);
	NEED(pthread_create(&thread, NULL, send_now_and_then, &e.a) == 0);
	for (int i = 0; i < 20; i++) {
		memset(got, 'z', sizeof got);
		EQ(recv(e.b, got, sizeof got, 0), 5);
		SAME(got, "short", 5);
		SAME(got + 5, rest, sizeof got - 5);
	}
	pthread_join(thread, NULL);
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

UDPS("a-full-receiver-drops")
{
	struct ends e = ends_of(kind);
	char octets[1000], got[1000];
	int count = 0;

	set_int(e.b, SOL_SOCKET, SO_RCVBUF, 4096);
	for (int i = 0; i < 200; i++)
		EQ(send(e.a, octets, sizeof(octets), 0), (long)sizeof(octets));
	while (!stays_quiet(e.b)) {
		EQ(recv(e.b, got, sizeof(got), 0), (long)sizeof(got));
		count++;
	}
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
