/* Streams: order, waiting for all, ends, bulk. */
#include "env.h"

STREAMS("octets-join-and-part")
{
	struct ends e = ends_of(kind);
	char got[16] = "";

	EQ(send(e.a, "one", 3, 0), 3);
	EQ(send(e.a, "two", 3, 0), 3);
	NEED(recv_all(e.b, got, 4));
	SAME(got, "onet", 4);
	NEED(recv_all(e.b, got, 2));
	SAME(got, "wo", 2);
	ends_close(e);
}

STREAMS("trunc-in-recv")
{
	struct ends e = ends_of(kind);
	char got[16] = "zzzzzzzz";

	EQ(send(e.a, "hello", 5, 0), 5);
	NEED(is_readable(e.b));
	if (kind == UNIX_STREAM) {
		EQ(recv(e.b, got, 3, MSG_TRUNC), 3);
	} else {
		/* TCP throws the octets away (tcp(7)). */
		EQ(recv(e.b, got, 3, MSG_TRUNC), 3);
		SAME(got, "zzz", 3);
	}
	EQ(recv(e.b, got, 16, 0), 2);
	SAME(got, "lo", 2);
	ends_close(e);
}

struct sender {
	int fd, pieces, pause;
	const char *text;
};

static void *send_in_pieces(void *of)
{
	struct sender *s = of;

	for (int i = 0; i < s->pieces; i++) {
		if (s->pause)
			sleep_ms(s->pause);
		EQ(send(s->fd, s->text + i, 1, 0), 1);
	}
	return NULL;
}

STREAMS("waitall-waits-for-all")
{
	/* A signal lets it return with less. */
	calm();
	struct ends e = ends_of(kind);
	struct sender s = {e.a, 5, 5, "hello"};
	pthread_t thread;
	char got[8] = "";

	NEED(pthread_create(&thread, NULL, send_in_pieces, &s) == 0);
	EQ(recv(e.b, got, 5, MSG_WAITALL), 5);
	SAME(got, "hello", 5);
	join_soon(thread, NULL);
	ends_close(e);
}

STREAMS("waitall-ends-with-the-stream")
{
	struct ends e = ends_of(kind);
	char got[8] = "";

	EQ(send(e.a, "abc", 3, 0), 3);
	EQ(close(e.a), 0);
	EQ(recv(e.b, got, 8, MSG_WAITALL), 3);
	EQ(recv(e.b, got, 8, MSG_WAITALL), 0);
	EQ(close(e.b), 0);
}

STREAMS("waitall-and-peek")
{
	/* A signal lets it return with less. */
	calm();
	struct ends e = ends_of(kind);
	struct sender s = {e.a, 4, 5, "peek"};
	pthread_t thread;
	char got[8] = "";

	if (kind == UNIX_STREAM)
		SKIP("a Unix stream's peek takes what is there");
	NEED(pthread_create(&thread, NULL, send_in_pieces, &s) == 0);
	EQ(recv(e.b, got, 4, MSG_WAITALL | MSG_PEEK), 4);
	EQ(recv(e.b, got, 4, 0), 4);
	join_soon(thread, NULL);
	ends_close(e);
}

STREAMS("recvmsg-waitall-over-vectors")
{
	/* A signal lets it return with less. */
	calm();
	struct ends e = ends_of(kind);
	struct sender s = {e.a, 6, 3, "vector"};
	pthread_t thread;
	char one[3] = "", two[4] = "";
	struct iovec in[2] = {{one, 2}, {two, 4}};
	struct msghdr msg = {.msg_iov = in, .msg_iovlen = 2};

	NEED(pthread_create(&thread, NULL, send_in_pieces, &s) == 0);
	EQ(recvmsg(e.b, &msg, MSG_WAITALL), 6);
	SAME(one, "ve", 2);
	SAME(two, "ctor", 4);
	join_soon(thread, NULL);
	ends_close(e);
}

STREAMS("end-of-stream-after-what-was-sent")
{
	struct ends e = ends_of(kind);
	char got[8] = "";

	EQ(send(e.a, "last", 4, 0), 4);
	EQ(close(e.a), 0);
	EQ(recv(e.b, got, 8, 0), 4);
	EQ(recv(e.b, got, 8, 0), 0);
	EQ(recv(e.b, got, 8, 0), 0);
	EQ(read(e.b, got, 8), 0);
	EQ(close(e.b), 0);
}

STREAMS("shutdown-of-writing-ends-the-stream")
{
	struct ends e = ends_of(kind);
	char got[8] = "";

	EQ(send(e.a, "last", 4, 0), 4);
	EQ(shutdown(e.a, SHUT_WR), 0);
	EQ(recv(e.b, got, 8, 0), 4);
	EQ(recv(e.b, got, 8, 0), 0);
	/* The other way stays. */
	EQ(send(e.b, "back", 4, 0), 4);
	EQ(recv(e.a, got, 8, 0), 4);
	FAILS(send(e.a, "x", 1, MSG_NOSIGNAL), EPIPE);
	ends_close(e);
}

STREAMS("shutdown-of-reading")
{
	struct ends e = ends_of(kind);
	char got[8] = "";

	EQ(shutdown(e.b, SHUT_RD), 0);
	EQ(recv(e.b, got, 8, 0), 0);
	EQ(send(e.b, "out", 3, 0), 3);
	EQ(recv(e.a, got, 8, 0), 3);
	ends_close(e);
}

STREAMS("shutdown-of-both")
{
	struct ends e = ends_of(kind);
	char got[8] = "";

	EQ(shutdown(e.a, SHUT_RDWR), 0);
	EQ(recv(e.a, got, 8, 0), 0);
	FAILS(send(e.a, "x", 1, MSG_NOSIGNAL), EPIPE);
	EQ(recv(e.b, got, 8, 0), 0);
	ends_close(e);
}

STREAMS("shutdown-twice")
{
	struct ends e = ends_of(kind);

	EQ(shutdown(e.a, SHUT_WR), 0);
	EQ(shutdown(e.a, SHUT_WR), 0);
	EQ(shutdown(e.a, SHUT_RD), 0);
	ends_close(e);
}

STREAMS("shutdown-of-nothing-known")
{
	struct ends e = ends_of(kind);

	FAILS(shutdown(e.a, 17), EINVAL);
	ends_close(e);
}

STREAMS("shutdown-unconnected")
{
	int fd = a_socket(kind);

	if (kind == UNIX_STREAM)
		EQ(shutdown(fd, SHUT_RDWR), 0);
	else
		FAILS(shutdown(fd, SHUT_RDWR), ENOTCONN);
	EQ(close(fd), 0);
}

STREAMS("send-and-recv-unconnected")
{
	int fd = a_socket(kind);
	char got[8];

	if (kind == UNIX_STREAM) {
		FAILS(send(fd, "x", 1, MSG_NOSIGNAL), ENOTCONN);
		FAILS(recv(fd, got, 8, 0), EINVAL);
	} else {
		FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
		FAILS(recv(fd, got, 8, 0), ENOTCONN);
	}
	EQ(close(fd), 0);
}

STREAMS("send-to-a-closed-peer-is-epipe")
{
	struct ends e = ends_of(kind);
	double end = deadline();

	EQ(close(e.b), 0);
	/* A TCP peer answers the first with a reset. */
	while (send(e.a, "x", 1, MSG_NOSIGNAL) == 1 && now() < end)
		sleep_ms(1);
	CHECK(errno == EPIPE || errno == ECONNRESET);
	FAILS(send(e.a, "x", 1, MSG_NOSIGNAL), EPIPE);
	FAILS(write(e.a, "x", 1), EPIPE);
	EQ(close(e.a), 0);
}

STREAMS("sigpipe")
{
	struct ends e = ends_of(kind);

	catch_signal(SIGPIPE, SA_RESTART);
	EQ(shutdown(e.a, SHUT_WR), 0);
	FAILS(send(e.a, "x", 1, MSG_NOSIGNAL), EPIPE);
	EQ(caught, 0);
	FAILS(send(e.a, "x", 1, 0), EPIPE);
	EQ(caught, 1);
	FAILS(write(e.a, "x", 1), EPIPE);
	EQ(caught, 2);
	struct iovec out = {"x", 1};
	FAILS(writev(e.a, &out, 1), EPIPE);
	EQ(caught, 3);
	struct msghdr one = {.msg_iov = &out, .msg_iovlen = 1};
	FAILS(sendmsg(e.a, &one, 0), EPIPE);
	EQ(caught, 4);
	ends_close(e);
}

STREAMS("connected-twice-is-refused")
{
	int listener = a_listener(kind, 4), fd = a_socket(kind);
	struct name name = name_of(listener);

	NEED(connect(fd, &name.any, name.length) == 0);
	FAILS(connect(fd, &name.any, name.length), EISCONN);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

STREAMS("sendto-with-an-address-on-a-connected-one")
{
	struct ends e = ends_of(kind);
	struct name name = peer_of(e.a);

	if (kind == UNIX_STREAM)
		FAILS(sendto(e.a, "x", 1, 0, &name.any, name.length), EISCONN);
	else
		EQ(sendto(e.a, "x", 1, 0, &name.any, name.length), 1);
	ends_close(e);
}

/* --- bulk */

struct bulk {
	int fd;
	size_t length;
	unsigned seed;
};

static void *send_bulk(void *of)
{
	struct bulk *b = of;
	char *octets = malloc(b->length);

	NEED(octets);
	fill(octets, b->length, b->seed);
	CHECK(send_all(b->fd, octets, b->length));
	EQ(shutdown(b->fd, SHUT_WR), 0);
	free(octets);
	return NULL;
}

STREAMS("megabytes-both-ways-at-once")
{
	struct ends e = ends_of(kind);
	struct bulk from_a = {e.a, 3000001, 1}, from_b = {e.b, 2000003, 2};
	pthread_t threads[2];
	char *got = malloc(3000001);

	NEED(got);
	NEED(pthread_create(&threads[0], NULL, send_bulk, &from_a) == 0);
	NEED(pthread_create(&threads[1], NULL, send_bulk, &from_b) == 0);
	/* Each side's reader runs after the other's: buffers make the writers wait. */
	NEED(recv_all(e.b, got, from_a.length));
	CHECK(holds(got, from_a.length, 1));
	NEED(recv_all(e.a, got, from_b.length));
	CHECK(holds(got, from_b.length, 2));
	join_soon(threads[0], NULL);
	join_soon(threads[1], NULL);
	EQ(recv(e.a, got, 1, 0), 0);
	EQ(recv(e.b, got, 1, 0), 0);
	free(got);
	ends_close(e);
}

STREAMS("non-blocking-send-takes-a-part")
{
	struct ends e = ends_of(kind);
	size_t length = 64 << 20;
	char *octets = calloc(1, length);

	NEED(octets);
	set_nonblocking(e.a, true);
	ssize_t got = send(e.a, octets, length, MSG_NOSIGNAL);
	CHECK(got > 0 && (size_t)got < length);
	free(octets);
	ends_close(e);
}

STREAMS("a-thousand-small-ones-arrive")
{
	struct ends e = ends_of(kind);
	char out[1000], in[1000];
	struct sender s = {e.a, 1000, 0, out};
	pthread_t thread;

	fill(out, 1000, 5);
	NEED(pthread_create(&thread, NULL, send_in_pieces, &s) == 0);
	NEED(recv_all(e.b, in, 1000));
	CHECK(holds(in, 1000, 5));
	join_soon(thread, NULL);
	ends_close(e);
}

STREAMS("low-water-mark")
{
	struct ends e = ends_of(kind);
	char got[16];

	if (kind == UNIX_STREAM)
		SKIP("poll on a Unix stream does not look at it");
	set_int(e.b, SOL_SOCKET, SO_RCVLOWAT, 4);
	EQ(get_int(e.b, SOL_SOCKET, SO_RCVLOWAT), 4);
	EQ(send(e.a, "ab", 2, 0), 2);
	CHECK(stays_quiet(e.b));
	EQ(send(e.a, "cd", 2, 0), 2);
	CHECK(is_readable(e.b));
	EQ(recv(e.b, got, 16, 0), 4);
	ends_close(e);
}
