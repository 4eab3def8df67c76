/* Listening and accepting. */
#include "env.h"

STREAMS("accept-gives-the-address-of-the-peer")
{
	int listener = a_listener(kind, 4), fd = a_bound(kind);
	struct name name = name_of(listener), own = name_of(fd), from = {.length = sizeof(from.storage)};

	NEED(connect(fd, &name.any, name.length) == 0);
	int got = accept(listener, &from.any, &from.length);
	NEED(got >= 0);
	EQ(from.length, own.length);
	SAME(&from.storage, &own.storage, own.length);
	EQ(close(got), 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

STREAMS("accept4-flags")
{
	int listener = a_listener(kind, 8);
	struct name name = name_of(listener);
	static const int flags[] = {0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC};

	for (int i = 0; i < 4; i++) {
		int fd = a_socket(kind);
		NEED(connect(fd, &name.any, name.length) == 0);
		int got = accept4(listener, NULL, NULL, flags[i]);
		NEED(got >= 0);
		EQ(!!(fcntl(got, F_GETFL) & O_NONBLOCK), !!(flags[i] & SOCK_NONBLOCK));
		EQ(!!(fcntl(got, F_GETFD) & FD_CLOEXEC), !!(flags[i] & SOCK_CLOEXEC));
		EQ(close(got), 0);
		EQ(close(fd), 0);
	}
	FAILS(accept4(listener, NULL, NULL, 1), EINVAL);
	EQ(close(listener), 0);
}

STREAMS("accept-inherits-no-flags")
{
	int listener = a_listener(kind, 8), fd = a_socket(kind);
	struct name name = name_of(listener);

	set_nonblocking(listener, true);
	NEED(connect(fd, &name.any, name.length) == 0);
	NEED(is_readable(listener));
	int got = accept(listener, NULL, NULL);
	NEED(got >= 0);
	EQ(fcntl(got, F_GETFL) & O_NONBLOCK, 0);
	EQ(close(got), 0);
	EQ(close(fd), 0);
	EQ(close(listener), 0);
}

STREAMS("accept-with-nobody-there")
{
	int listener = a_listener(kind, 8);

	set_nonblocking(listener, true);
	FAILS(accept(listener, NULL, NULL), EAGAIN);
	FAILS(accept4(listener, NULL, NULL, SOCK_CLOEXEC), EAGAIN);
	EQ(close(listener), 0);
}

STREAMS("accept-timeout")
{
	calm();
	int listener = a_listener(kind, 8);
	struct timeval limit = {0, 40000};

	NEED(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
	FAILS(accept(listener, NULL, NULL), EAGAIN);
	EQ(close(listener), 0);
}

STREAMS("accept-without-listen")
{
	int fd = a_bound(kind);

	FAILS(accept(fd, NULL, NULL), EINVAL);
	EQ(close(fd), 0);
}

STREAMS("listen-is-told")
{
	int listener = a_listener(kind, 8);

	EQ(get_int(listener, SOL_SOCKET, SO_ACCEPTCONN), 1);
	EQ(listen(listener, 20), 0);
	EQ(close(listener), 0);
}

STREAMS("listen-on-a-connected-one-is-refused")
{
	struct ends e = ends_of(kind);

	FAILS(listen(e.a, 1), EINVAL);
	ends_close(e);
}

STREAMS("recv-on-a-listener-is-refused")
{
	int listener = a_listener(kind, 8);
	char got[8];

	if (kind == UNIX_STREAM)
		FAILS(recv(listener, got, 8, 0), EINVAL);
	else
		FAILS(recv(listener, got, 8, 0), ENOTCONN);
	EQ(close(listener), 0);
}

STREAMS("several-wait-in-the-backlog-in-order")
{
	int listener = a_listener(kind, 8), fds[5];
	struct name name = name_of(listener);
	char octet;

	for (int i = 0; i < 5; i++) {
		fds[i] = a_socket(kind);
		NEED(connect(fds[i], &name.any, name.length) == 0);
		octet = (char)('0' + i);
		EQ(send(fds[i], &octet, 1, 0), 1);
	}
	for (int i = 0; i < 5; i++) {
		int got = accept(listener, NULL, NULL);
		NEED(got >= 0);
		EQ(recv(got, &octet, 1, 0), 1);
		EQ(octet, '0' + i);
		EQ(close(got), 0);
		EQ(close(fds[i]), 0);
	}
	EQ(close(listener), 0);
}

STREAMS("closed-before-it-is-accepted")
{
	int listener = a_listener(kind, 8), fd = a_socket(kind);
	struct name name = name_of(listener);
	char got[8];

	NEED(connect(fd, &name.any, name.length) == 0);
	EQ(send(fd, "bye", 3, 0), 3);
	EQ(close(fd), 0);
	int end = accept(listener, NULL, NULL);
	NEED(end >= 0);
	EQ(recv(end, got, 8, 0), 3);
	EQ(recv(end, got, 8, 0), 0);
	EQ(close(end), 0);
	EQ(close(listener), 0);
}

STREAMS("connect-to-a-closed-listener-is-refused")
{
	int fd = a_socket(kind), keeper;

	while ((keeper = close_and_keep(kind, a_listener(kind, 8))) < 0)
		;
	struct name name = name_of(keeper);
	FAILS(connect(fd, &name.any, name.length), ECONNREFUSED);
	EQ(close(fd), 0);
	EQ(close(keeper), 0);
}

STREAMS("a-listener-closed-leaves-its-connections")
{
	struct ends e = ends_of(kind);
	char got[8];

	EQ(send(e.b, "on", 2, 0), 2);
	EQ(recv(e.a, got, 8, 0), 2);
	ends_close(e);
}
