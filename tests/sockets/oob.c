/* TCP's urgent octets, apart from the stream and in it (tcp(7), "Sockets API"). */
#include "ready.h"

/* Framing has no place for an octet outside of the stream: over DDP the send is refused, and nothing is sent. */
static void need_urgent(struct ends e)
{
	if (send(e.a, "", 0, MSG_OOB) < 0 && errno == EOPNOTSUPP)
		SKIP("a stream over DDP has no urgent octets");
}

TCPS("oob.apart-from-the-stream")
{
	struct ends e = ends_of(kind);
	need_urgent(e);
	char got[8] = "";

	EQ(send(e.a, "ab", 2, 0), 2);
	EQ(send(e.a, "!", 1, MSG_OOB), 1);
	EQ(send(e.a, "cd", 2, 0), 2);
	EQ(wait_for(e.b, POLLPRI, patience), POLLPRI);
	EQ(recv(e.b, got, 8, MSG_OOB), 1);
	EQ(got[0], '!');
	EQ(sockatmark(e.b), 0);
	/* A read stops at the mark. */
	EQ(recv(e.b, got, 8, 0), 2);
	EQ(sockatmark(e.b), 1);
	NEED(recv_all(e.b, got, 2));
	SAME(got, "cd", 2);
	ends_close(e);
}

TCPS("oob.none-is-invalid")
{
	struct ends e = ends_of(kind);
	char got[8];

	FAILS(recv(e.b, got, 8, MSG_OOB), EINVAL);
	ends_close(e);
}

TCPS("oob.inline")
{
	struct ends e = ends_of(kind);
	need_urgent(e);
	char got[8] = "";

	set_int(e.b, SOL_SOCKET, SO_OOBINLINE, 1);
	EQ(send(e.a, "ab!", 3, MSG_OOB), 3);
	NEED(is_readable(e.b));
	EQ(recv(e.b, got, 8, 0), 2);
	EQ(recv(e.b, got, 8, 0), 1);
	EQ(got[0], '!');
	ends_close(e);
}

/* The urgent octet behind `before` has come. */
static void urgent_comes(struct ends e, const char *before)
{
	size_t length = strlen(before);

	NEED(send(e.a, before, length, 0) == (ssize_t)length);
	NEED(send(e.a, "!", 1, MSG_OOB) == 1);
	NEED(wait_for(e.b, POLLPRI, patience) == POLLPRI);
	NEED(octets_come(e.b, (int)length));
}

TCPS("oob.skipped-by-reads")
{
	struct ends e = ends_of(kind);
	need_urgent(e);
	char got[8] = "";

	urgent_comes(e, "ab");
	EQ(send(e.a, "cd", 2, 0), 2);
	EQ(recv(e.b, got, 8, 0), 2);
	NEED(recv_all(e.b, got, 2));
	SAME(got, "cd", 2);
	/* Behind it there is nothing more to ask for. */
	FAILS(recv(e.b, got, 1, MSG_OOB), EINVAL);
	EQ(wait_for(e.b, POLLIN | POLLPRI, 0), 0);
	ends_close(e);
}

TCPS("oob.peeked-and-taken-once")
{
	struct ends e = ends_of(kind);
	need_urgent(e);
	char got[8] = "";

	urgent_comes(e, "ab");
	EQ(recv(e.b, got, 8, MSG_OOB | MSG_PEEK), 1);
	EQ(got[0], '!');
	EQ(recv(e.b, got, 8, MSG_OOB), 1);
	EQ(got[0], '!');
	FAILS(recv(e.b, got, 8, MSG_OOB), EINVAL);
	EQ(recv(e.b, got, 8, 0), 2);
	ends_close(e);
}

TCPS("oob.counts-go-up-to-the-mark")
{
	struct ends e = ends_of(kind);
	need_urgent(e);
	char got[8];
	int there = -1, mark = -1;

	urgent_comes(e, "abc");
	EQ(send(e.a, "de", 2, 0), 2);
	sleep_ms(20);
	EQ(ioctl(e.b, FIONREAD, &there), 0);
	EQ(there, 3);
	EQ(ioctl(e.b, SIOCATMARK, &mark), 0);
	EQ(mark, 0);
	EQ(recv(e.b, got, 3, 0), 3);
	EQ(ioctl(e.b, SIOCATMARK, &mark), 0);
	EQ(mark, 1);
	NEED(recv_all(e.b, got, 2));
	SAME(got, "de", 2);
	EQ(ioctl(e.b, SIOCATMARK, &mark), 0);
	EQ(mark, 0);
	ends_close(e);
}

TCPS("oob.only-the-last-octet-is-urgent")
{
	struct ends e = ends_of(kind);
	need_urgent(e);
	char got[8] = "";

	EQ(send(e.a, "abc!", 4, MSG_OOB), 4);
	NEED(wait_for(e.b, POLLPRI, patience) == POLLPRI);
	EQ(recv(e.b, got, 8, MSG_OOB), 1);
	EQ(got[0], '!');
	EQ(recv(e.b, got, 8, 0), 3);
	SAME(got, "abc", 3);
	ends_close(e);
}

TCPS("oob.told-by-epoll-and-select")
{
	struct ends e = ends_of(kind);
	need_urgent(e);
	struct epoll_event got = {};
	int set = a_poll();
	fd_set in, except;
	struct timeval limit = {patience / 1000, 0};

	watch(set, e.b, EPOLLPRI);
	EQ(events_of(set, NULL, 0), 0);
	urgent_comes(e, "a");
	EQ(events_of(set, &got, patience), 1);
	EQ(got.events, EPOLLPRI);
	FD_ZERO(&in);
	FD_ZERO(&except);
	FD_SET(e.b, &except);
	EQ(TEMP_FAILURE_RETRY(select(e.b + 1, &in, NULL, &except, &limit)), 1);
	CHECK(FD_ISSET(e.b, &except));
	EQ(close(set), 0);
	ends_close(e);
}

TCPS("oob.raises-sigurg-for-the-owner")
{
	struct ends e = ends_of(kind);
	need_urgent(e);

	catch_signal(SIGURG, SA_RESTART);
	EQ(fcntl(e.b, F_SETOWN, getpid()), 0);
	EQ(send(e.a, "plain", 5, 0), 5);
	NEED(is_readable(e.b));
	EQ(caught, 0);
	EQ(send(e.a, "!", 1, MSG_OOB), 1);
	for (double end = deadline(); !caught && now() < end;)
		sleep_ms(1);
	EQ(caught, 1);
	ends_close(e);
}

TCPS("oob.inline-with-a-mark")
{
	struct ends e = ends_of(kind);
	need_urgent(e);
	char got[8] = "";

	set_int(e.b, SOL_SOCKET, SO_OOBINLINE, 1);
	EQ(get_int(e.b, SOL_SOCKET, SO_OOBINLINE), 1);
	EQ(send(e.a, "ab!", 3, MSG_OOB), 3);
	EQ(send(e.a, "cd", 2, 0), 2);
	NEED(wait_for(e.b, POLLPRI, patience) == POLLPRI);
	/* It is no longer to be had apart from the stream. */
	FAILS(recv(e.b, got, 1, MSG_OOB), EINVAL);
	EQ(recv(e.b, got, 8, 0), 2);
	EQ(sockatmark(e.b), 1);
	NEED(recv_all(e.b, got, 3));
	SAME(got, "!cd", 3);
	EQ(sockatmark(e.b), 0);
	ends_close(e);
}

TCPS("oob.after-the-end-is-refused")
{
	struct ends e = ends_of(kind);
	need_urgent(e);

	EQ(shutdown(e.a, SHUT_WR), 0);
	FAILS(send(e.a, "!", 1, MSG_OOB | MSG_NOSIGNAL), EPIPE);
	ends_close(e);
}
