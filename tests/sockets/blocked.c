/* What ends a blocking call: data, the peer, shutdown. */
#include "waiter.h"

SOCKETS("blocked-recv-woken-by-data")
{
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.b};
	pthread_t thread = waiting(&w, wait_recv);

	EQ(send(e.a, "wake", 4, 0), 4);
	NEED(join_soon(thread, NULL));
	EQ(w.result, 4);
	ends_close(e);
}

STREAMS("blocked-recv-woken-by-the-end-of-the-peer")
{
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.b};
	pthread_t thread = waiting(&w, wait_recv);

	EQ(close(e.a), 0);
	NEED(join_soon(thread, NULL));
	EQ(w.result, 0);
	EQ(close(e.b), 0);
}

SOCKETS("blocked-recv-woken-by-shutdown-of-another-thread")
{
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.b};
	pthread_t thread = waiting(&w, wait_recv);

	EQ(shutdown(e.b, SHUT_RDWR), 0);
	NEED(join_soon(thread, NULL));
	EQ(w.result, 0);
	ends_close(e);
}

SOCKETS("blocked-recv-goes-on-though-its-number-is-closed")
{
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.b};
	calm();
	pthread_t thread = waiting(&w, wait_recv);

	/* Linux: the call holds the socket; close(2), "multithreaded processes". */
	EQ(close(e.b), 0);
	EQ(send(e.a, "late", 4, 0), 4);
	NEED(join_soon(thread, NULL));
	EQ(w.result, 4);
	EQ(close(e.a), 0);
}

STREAMS("several-blocked-on-one-each-gets-some")
{
	struct ends e = ends_of(kind);
	struct waiter w[3] = {{.fd = e.b}, {.fd = e.b}, {.fd = e.b}};
	pthread_t threads[3];
	ssize_t total = 0;

	for (int i = 0; i < 3; i++)
		threads[i] = waiting(&w[i], wait_recv);
	for (int i = 0; i < 3; i++) {
		EQ(send(e.a, "ab", 2, 0), 2);
		sleep_ms(5);
	}
	EQ(shutdown(e.a, SHUT_WR), 0);
	for (int i = 0; i < 3; i++) {
		NEED(join_soon(threads[i], NULL));
		total += w[i].result;
	}
	char rest[16];
	ssize_t left = recv(e.b, rest, sizeof(rest), 0);
	EQ(total + left, 6);
	ends_close(e);
}

STREAMS("blocked-accept-woken-by-a-connection")
{
	struct waiter w = {.fd = a_listener(kind, 4)};
	struct name name = name_of(w.fd);
	pthread_t thread = waiting(&w, wait_accept);
	int fd = a_socket(kind);

	EQ(connect(fd, &name.any, name.length), 0);
	NEED(join_soon(thread, NULL));
	CHECK(w.result >= 0);
}

STREAMS("blocked-accept-woken-by-shutdown")
{
	struct waiter w = {.fd = a_listener(kind, 4)};
	pthread_t thread = waiting(&w, wait_accept);

	EQ(shutdown(w.fd, SHUT_RDWR), 0);
	NEED(join_soon(thread, NULL));
	EQ(w.result, -1);
	EQ(w.error, EINVAL);
	EQ(close(w.fd), 0);
}

STREAMS("blocked-send-goes-on-as-the-peer-reads")
{
	calm();
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.a};
	pthread_t thread = waiting(&w, wait_send);
	static char got[1 << 22];

	NEED(recv_all(e.b, got, sizeof(got)));
	NEED(join_soon(thread, NULL));
	EQ(w.result, 1 << 22);
	ends_close(e);
}

STREAMS("blocked-send-ends-when-the-peer-does")
{
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.a};
	pthread_t thread = waiting(&w, wait_send);

	EQ(close(e.b), 0);
	NEED(join_soon(thread, NULL));
	/* What it had taken is told first; the next call has the error. */
	CHECK(w.result > 0 || w.error == EPIPE || w.error == ECONNRESET);
	double end = deadline();
	while (send(e.a, "x", 1, MSG_NOSIGNAL) == 1 && now() < end)
		;
	CHECK(errno == EPIPE || errno == ECONNRESET);
	EQ(close(e.a), 0);
}

STREAMS("blocked-send-woken-by-shutdown")
{
	struct ends e = ends_of(kind);
	struct waiter w = {.fd = e.a};
	pthread_t thread = waiting(&w, wait_send);

	EQ(shutdown(e.a, SHUT_RDWR), 0);
	NEED(join_soon(thread, NULL));
	CHECK(w.result < 1 << 22);
	ends_close(e);
}
