/* Sending and receiving, of every socket: forms, flags, vectors, full buffers, timeouts. */
#include "env.h"

SOCKETS("send-and-recv")
{
	struct ends e = ends_of(kind);
	char got[16] = "";

	EQ(send(e.a, "hello", 5, 0), 5);
	EQ(recv(e.b, got, sizeof(got), 0), 5);
	SAME(got, "hello", 5);
	ends_close(e);
}

SOCKETS("both-ways")
{
	struct ends e = ends_of(kind);
	char got[16] = "";

	EQ(send(e.b, "back", 4, 0), 4);
	EQ(recv(e.a, got, sizeof(got), 0), 4);
	SAME(got, "back", 4);
	ends_close(e);
}

SOCKETS("write-and-read")
{
	struct ends e = ends_of(kind);
	char got[16] = "";

	EQ(write(e.a, "hello", 5), 5);
	EQ(read(e.b, got, sizeof(got)), 5);
	SAME(got, "hello", 5);
	ends_close(e);
}

SOCKETS("writev-and-readv")
{
	struct ends e = ends_of(kind);
	char one[4] = "", two[8] = "";
	struct iovec out[3] = {{"he", 2}, {NULL, 0}, {"llo", 3}}, in[2] = {{one, 3}, {two, 7}};

	EQ(writev(e.a, out, 3), 5);
	EQ(readv(e.b, in, 2), 5);
	SAME(one, "hel", 3);
	SAME(two, "lo", 2);
	ends_close(e);
}

SOCKETS("sendto-without-an-address-and-recvfrom")
{
	struct ends e = ends_of(kind);
	char got[16] = "";
	struct name from = {.length = sizeof(from.storage)};

	EQ(sendto(e.a, "hello", 5, 0, NULL, 0), 5);
	EQ(recvfrom(e.b, got, sizeof(got), 0, &from.any, &from.length), 5);
	if (kind_type((enum kind)kind) == SOCK_DGRAM) {
		struct name want = name_of(e.a);
		EQ(from.length, want.length);
		SAME(&from.storage, &want.storage, want.length);
	} else {
		/* A stream says nothing of its sender here. */
		EQ(from.length, 0);
	}
	ends_close(e);
}

SOCKETS("recvfrom-without-a-place-for-the-address")
{
	struct ends e = ends_of(kind);
	char got[16] = "";

	EQ(send(e.a, "hello", 5, 0), 5);
	EQ(recvfrom(e.b, got, sizeof(got), 0, NULL, NULL), 5);
	ends_close(e);
}

SOCKETS("sendmsg-and-recvmsg")
{
	struct ends e = ends_of(kind);
	char one[4] = "", two[8] = "";
	struct iovec out[2] = {{"he", 2}, {"llo", 3}}, in[2] = {{one, 3}, {two, 7}};
	struct msghdr send_one = {.msg_iov = out, .msg_iovlen = 2}, recv_one = {.msg_iov = in, .msg_iovlen = 2};

	recv_one.msg_flags = -1;
	EQ(sendmsg(e.a, &send_one, 0), 5);
	EQ(recvmsg(e.b, &recv_one, 0), 5);
	EQ(recv_one.msg_flags, 0);
	EQ(recv_one.msg_controllen, 0);
	SAME(one, "hel", 3);
	SAME(two, "lo", 2);
	ends_close(e);
}

SOCKETS("peek-leaves-it")
{
	struct ends e = ends_of(kind);
	char got[16] = "";

	EQ(send(e.a, "hello", 5, 0), 5);
	EQ(recv(e.b, got, 2, MSG_PEEK), 2);
	EQ(recv(e.b, got, sizeof(got), MSG_PEEK), 5);
	EQ(recv(e.b, got, sizeof(got), 0), 5);
	SAME(got, "hello", 5);
	FAILS(recv(e.b, got, sizeof(got), MSG_DONTWAIT), EAGAIN);
	ends_close(e);
}

SOCKETS("dontwait-with-nothing-there")
{
	struct ends e = ends_of(kind);
	char got[16];

	FAILS(recv(e.b, got, sizeof(got), MSG_DONTWAIT), EAGAIN);
	FAILS(recv(e.b, got, sizeof(got), MSG_DONTWAIT | MSG_PEEK), EAGAIN);
	/* The socket itself still blocks. */
	EQ(fcntl(e.b, F_GETFL) & O_NONBLOCK, 0);
	ends_close(e);
}

SOCKETS("non-blocking-with-nothing-there")
{
	struct ends e = ends_of(kind);
	char got[16];
	struct iovec in = {got, sizeof(got)};
	struct msghdr one = {.msg_iov = &in, .msg_iovlen = 1};

	set_nonblocking(e.b, true);
	FAILS(recv(e.b, got, sizeof(got), 0), EAGAIN);
	FAILS(read(e.b, got, sizeof(got)), EAGAIN);
	FAILS(readv(e.b, &in, 1), EAGAIN);
	FAILS(recvfrom(e.b, got, sizeof(got), 0, NULL, NULL), EAGAIN);
	FAILS(recvmsg(e.b, &one, 0), EAGAIN);
	FAILS(recv(e.b, got, sizeof(got), MSG_WAITALL), EAGAIN);
	set_nonblocking(e.b, false);
	ends_close(e);
}

SOCKETS("fionbio")
{
	struct ends e = ends_of(kind);
	char got[16];
	int on = 1, off = 0;

	EQ(ioctl(e.b, FIONBIO, &on), 0);
	CHECK(fcntl(e.b, F_GETFL) & O_NONBLOCK);
	FAILS(recv(e.b, got, sizeof(got), 0), EAGAIN);
	EQ(ioctl(e.b, FIONBIO, &off), 0);
	CHECK(!(fcntl(e.b, F_GETFL) & O_NONBLOCK));
	ends_close(e);
}

SOCKETS("fionread")
{
	struct ends e = ends_of(kind);
	int there = -1;

	EQ(ioctl(e.b, FIONREAD, &there), 0);
	EQ(there, 0);
	EQ(send(e.a, "hello", 5, 0), 5);
	NEED(is_readable(e.b));
	EQ(ioctl(e.b, FIONREAD, &there), 0);
	EQ(there, 5);
	ends_close(e);
}

SOCKETS("sendmmsg-and-recvmmsg")
{
	struct ends e = ends_of(kind);
	char got[3][8] = {};
	struct iovec out[3] = {{"one", 3}, {"two", 3}, {"three", 5}}, in[3] = {{got[0], 8}, {got[1], 8}, {got[2], 8}};
	struct mmsghdr send_them[3] = {}, recv_them[3] = {};

	for (int i = 0; i < 3; i++) {
		send_them[i].msg_hdr = (struct msghdr){.msg_iov = &out[i], .msg_iovlen = 1};
		recv_them[i].msg_hdr = (struct msghdr){.msg_iov = &in[i], .msg_iovlen = 1};
	}
	EQ(sendmmsg(e.a, send_them, 3, 0), 3);
	EQ(send_them[2].msg_len, 5);
	if (kind_type((enum kind)kind) == SOCK_STREAM) {
		NEED(octets_come(e.b, 11));
		EQ(recvmmsg(e.b, recv_them, 3, MSG_DONTWAIT, NULL), 2);
		EQ(recv_them[0].msg_len + recv_them[1].msg_len, 11);
		SAME(got[0], "onetwoth", 8);
	} else {
		EQ(recvmmsg(e.b, recv_them, 3, 0, NULL), 3);
		EQ(recv_them[0].msg_len, 3);
		EQ(recv_them[2].msg_len, 5);
		SAME(got[1], "two", 3);
		SAME(got[2], "three", 5);
	}
	ends_close(e);
}

SOCKETS("recvmmsg-waitforone")
{
	struct ends e = ends_of(kind);
	char got[2][8];
	struct iovec in[2] = {{got[0], 8}, {got[1], 8}};
	struct mmsghdr them[2] = {};

	for (int i = 0; i < 2; i++)
		them[i].msg_hdr = (struct msghdr){.msg_iov = &in[i], .msg_iovlen = 1};
	EQ(send(e.a, "one", 3, 0), 3);
	EQ(recvmmsg(e.b, them, 2, MSG_WAITFORONE, NULL), 1);
	EQ(them[0].msg_len, 3);
	ends_close(e);
}

SOCKETS("recvmmsg-of-none-and-with-nothing-there")
{
	struct ends e = ends_of(kind);
	char got[8];
	struct iovec in = {got, 8};
	struct mmsghdr one = {.msg_hdr = {.msg_iov = &in, .msg_iovlen = 1}};

	EQ(recvmmsg(e.b, &one, 0, 0, NULL), 0);
	FAILS(recvmmsg(e.b, &one, 1, MSG_DONTWAIT, NULL), EAGAIN);
	EQ(sendmmsg(e.a, &one, 0, 0), 0);
	ends_close(e);
}

SOCKETS("recvmmsg-with-a-wrong-timeout")
{
	struct ends e = ends_of(kind);
	char got[8];
	struct iovec in = {got, 8};
	struct mmsghdr one = {.msg_hdr = {.msg_iov = &in, .msg_iovlen = 1}};
	struct timespec wrong = {0, 1000000000};

	FAILS(recvmmsg(e.b, &one, 1, MSG_DONTWAIT, &wrong), EINVAL);
	ends_close(e);
}

SOCKETS("recvmmsg-writes-back-the-time-that-is-left")
{
	calm();
	struct ends e = ends_of(kind);
	char got[8];
	struct iovec in = {got, 8};
	struct mmsghdr one = {.msg_hdr = {.msg_iov = &in, .msg_iovlen = 1}};
	struct timespec left = {1000, 0};

	EQ(send(e.a, "one", 3, 0), 3);
	EQ(recvmmsg(e.b, &one, 1, 0, &left), 1);
	/* Less than there was, and not much: the datagram was there. */
	CHECK(left.tv_sec < 1000 && left.tv_sec >= 900);
	ends_close(e);
}

SOCKETS("receive-timeout")
{
	calm();
	struct ends e = ends_of(kind);
	struct timeval limit = {0, 50000}, back = {};
	socklen_t length = sizeof(back);
	char got[8];

	NEED(setsockopt(e.b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
	NEED(getsockopt(e.b, SOL_SOCKET, SO_RCVTIMEO, &back, &length) == 0);
	CHECK(back.tv_sec == 0 && back.tv_usec >= 50000 && back.tv_usec <= 60000);
	double start = now();
	FAILS(recv(e.b, got, sizeof(got), 0), EAGAIN);
	CHECK(now() - start >= 0.045);
	ends_close(e);
}

SOCKETS("a-wrong-descriptor")
{
	char got[8];
	struct msghdr one = {};
	struct mmsghdr many = {};

	FAILS(send(-1, "x", 1, 0), EBADF);
	FAILS(recv(-1, got, 1, 0), EBADF);
	FAILS(sendto(9999, "x", 1, 0, NULL, 0), EBADF);
	FAILS(recvfrom(9999, got, 1, 0, NULL, NULL), EBADF);
	FAILS(sendmsg(-1, &one, 0), EBADF);
	FAILS(recvmsg(-1, &one, 0), EBADF);
	FAILS(sendmmsg(-1, &many, 1, 0), EBADF);
	FAILS(recvmmsg(-1, &many, 1, 0, NULL), EBADF);
	FAILS(read(-1, got, 1), EBADF);
	FAILS(write(-1, "x", 1), EBADF);
	FAILS(shutdown(-1, SHUT_RDWR), EBADF);
	FAILS(close(-1), EBADF);
	struct ends e = ends_of(kind);
	ends_close(e);
	FAILS(send(e.a, "x", 1, 0), EBADF);
	FAILS(close(e.a), EBADF);
}

SOCKETS("a-wrong-address-of-the-buffer")
{
	struct ends e = ends_of(kind);
	void *nowhere = (void *)8;

	FAILS(send(e.a, nowhere, 5, 0), EFAULT);
	EQ(send(e.a, "hello", 5, 0), 5);
	FAILS(recv(e.b, nowhere, 5, 0), EFAULT);
	ends_close(e);
}

SOCKETS("vectors-of-too-many")
{
	struct ends e = ends_of(kind);
	static struct iovec many[1025];
	char octet = 'x';
	volatile int minus_one = -1; /* the compiler would warn */

	for (int i = 0; i < 1025; i++)
		many[i] = (struct iovec){&octet, 1};
	FAILS(writev(e.a, many, 1025), EINVAL);
	FAILS(readv(e.b, many, 1025), EINVAL);
	FAILS(writev(e.a, many, minus_one), EINVAL);
	struct msghdr one = {.msg_iov = many, .msg_iovlen = 1025};
	FAILS(sendmsg(e.a, &one, 0), EMSGSIZE);
	FAILS(recvmsg(e.b, &one, MSG_DONTWAIT), EMSGSIZE);
	EQ(writev(e.a, many, 1024), 1024);
	ends_close(e);
}

SOCKETS("vectors-of-none")
{
	struct ends e = ends_of(kind);
	struct iovec none = {};

	if (kind_type((enum kind)kind) == SOCK_STREAM) {
		EQ(writev(e.a, &none, 0), 0);
		EQ(readv(e.b, &none, 0), 0);
	} else {
		/* writev of no octets sends nothing; a message of none does. */
		EQ(writev(e.a, &none, 0), 0);
		CHECK(stays_quiet(e.b));
	}
	ends_close(e);
}

SOCKETS("read-of-zero-octets")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.a, "hello", 5, 0), 5);
	NEED(is_readable(e.b));
	if (kind_type((enum kind)kind) == SOCK_STREAM) {
		EQ(recv(e.b, got, 0, 0), 0);
		EQ(recv(e.b, got, 8, 0), 5);
	} else {
		/* It takes the datagram with it. */
		EQ(recv(e.b, got, 0, 0), 0);
		FAILS(recv(e.b, got, 8, MSG_DONTWAIT), EAGAIN);
	}
	ends_close(e);
}

SOCKETS("seek-and-pread-are-refused")
{
	struct ends e = ends_of(kind);
	char got[8];

	FAILS(lseek(e.a, 0, SEEK_CUR), ESPIPE);
	FAILS(pread(e.a, got, 1, 0), ESPIPE);
	FAILS(pwrite(e.a, "x", 1, 0), ESPIPE);
	ends_close(e);
}

SOCKETS("vectors-at-a-place-are-refused")
{
	struct ends e = ends_of(kind);
	char octet = 'x';
	struct iovec v = {&octet, 1};

	EQ(send(e.a, "y", 1, 0), 1);
	NEED(is_readable(e.b));
	for (off_t at = 0; at < 2; at++) {
		FAILS(preadv(e.b, &v, 1, at), ESPIPE);
		FAILS(pwritev(e.a, &v, 1, at), ESPIPE);
		FAILS(preadv2(e.b, &v, 1, at, 0), ESPIPE);
		FAILS(pwritev2(e.a, &v, 1, at, 0), ESPIPE);
	}
	/* Only the second form knows a place that is none. */
	FAILS(preadv(e.b, &v, 1, -1), EINVAL);
	FAILS(pwritev(e.a, &v, 1, -1), EINVAL);
	EQ(preadv2(e.b, &v, 1, -1, 0), 1);
	EQ(octet, 'y');
	CHECK(stays_quiet(e.b));
	EQ(pwritev2(e.a, &v, 1, -1, 0), 1);
	EQ(recv(e.b, &octet, 1, 0), 1);
	ends_close(e);
}

SOCKETS("big-and-whole")
{
	struct ends e = ends_of(kind);
	static char out[8000], in[8000];

	fill(out, sizeof(out), 3);
	EQ(send(e.a, out, sizeof(out), 0), (long)sizeof(out));
	NEED(recv_all(e.b, in, sizeof(in)));
	CHECK(holds(in, sizeof(in), 3));
	ends_close(e);
}

SOCKETS("send-buffer-full-is-would-block")
{
	struct ends e = ends_of(kind);
	static char octets[4096];

	if (kind == UDP4 || kind == UDP6)
		SKIP("loopback drops datagrams rather than making the sender wait");
	set_int(e.a, SOL_SOCKET, SO_SNDBUF, 8192);
	CHECK(fill_up(e.a) > 0);
	/* TCP's windows may open a little again for a while. */
	bool full = false;
	for (double end = deadline(); !full && now() < end;)
		full = send(e.a, octets, sizeof(octets), MSG_DONTWAIT) < 0 && errno == EAGAIN &&
		       wait_for(e.a, POLLOUT, 10) == 0;
	CHECK(full);
	/* It goes on when the other side reads. */
	while (recv(e.b, octets, sizeof(octets), MSG_DONTWAIT) > 0)
		;
	CHECK(wait_for(e.a, POLLOUT, patience) & POLLOUT);
	ends_close(e);
}

SOCKETS("send-timeout")
{
	calm();
	struct ends e = ends_of(kind);
	struct timeval limit = {0, 50000};
	static char octets[4096];

	if (kind == UDP4 || kind == UDP6)
		SKIP("loopback drops datagrams rather than making the sender wait");
	set_int(e.a, SOL_SOCKET, SO_SNDBUF, 8192);
	fill_up(e.a);
	NEED(setsockopt(e.a, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0);
	/* TCP's windows may open a little again for a while. */
	double end = deadline(), start;
	ssize_t sent;
	do {
		start = now();
		sent = send(e.a, octets, sizeof(octets), 0);
	} while (sent > 0 && now() < end);
	CHECK(sent == -1 && errno == EAGAIN);
	CHECK(now() - start >= 0.045);
	ends_close(e);
}

SOCKETS("errqueue-is-empty")
{
	struct ends e = ends_of(kind);
	char got[16];
	struct iovec in = {got, sizeof(got)};
	struct msghdr one = {.msg_iov = &in, .msg_iovlen = 1};

	/* Never blocks. A Unix stream has no such queue and reads plainly. */
	if (kind == UNIX_STREAM || kind == UNIX_DGRAM)
		SKIP("Unix sockets have no error queue");
	FAILS(recvmsg(e.b, &one, MSG_ERRQUEUE), EAGAIN);
	ends_close(e);
}

SOCKETS("out-of-order-flags-are-refused")
{
	struct ends e = ends_of(kind);

	if (kind_type((enum kind)kind) == SOCK_STREAM && kind != UNIX_STREAM)
		SKIP("TCP has urgent octets");
	if (kind == UNIX_STREAM)
		SKIP("Unix streams have them since Linux 5.15");
	/* UDP over IPv6 takes it for a plain one. */
	if (kind == UDP6)
		EQ(send(e.a, "x", 1, MSG_OOB), 1);
	else
		FAILS(send(e.a, "x", 1, MSG_OOB), EOPNOTSUPP);
	ends_close(e);
}
