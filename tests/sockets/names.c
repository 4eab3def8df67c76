/* Addresses, names and kinds, of every socket. */
#include "env.h"

SOCKETS("getsockname-and-getpeername")
{
	struct ends e = ends_of(kind);
	struct name a = name_of(e.a), b = name_of(e.b), of_a = peer_of(e.b), of_b = peer_of(e.a);

	EQ(a.any.sa_family, kind_family((enum kind)kind));
	EQ(of_a.length, a.length);
	EQ(of_b.length, b.length);
	SAME(&of_a.storage, &a.storage, a.length);
	SAME(&of_b.storage, &b.storage, b.length);
	ends_close(e);
}

SOCKETS("getsockname-cut-short")
{
	struct ends e = ends_of(kind);
	struct name name;
	socklen_t length = 3;

	memset(&name, 0xee, sizeof(name));
	EQ(getsockname(e.b, &name.any, &length), 0);
	/* The length that it would have had; nothing behind the third octet. */
	EQ(length, name_of(e.b).length);
	EQ(((unsigned char *)&name.storage)[3], 0xee);
	length = (socklen_t)-1;
	FAILS(getsockname(e.b, &name.any, &length), EINVAL);
	ends_close(e);
}

SOCKETS("getpeername-unconnected")
{
	int fd = a_bound(kind);
	struct name name = {.length = sizeof(name.storage)};

	FAILS(getpeername(fd, &name.any, &name.length), ENOTCONN);
	EQ(close(fd), 0);
}

SOCKETS("type-family-protocol-and-listening-are-told")
{
	int fd = a_bound(kind);

	EQ(get_int(fd, SOL_SOCKET, SO_TYPE), kind_type((enum kind)kind));
	EQ(get_int(fd, SOL_SOCKET, SO_DOMAIN), kind_family((enum kind)kind));
	EQ(get_int(fd, SOL_SOCKET, SO_ACCEPTCONN), 0);
	int protocol = get_int(fd, SOL_SOCKET, SO_PROTOCOL);
	EQ(protocol, kind <= TCP6 ? IPPROTO_TCP : kind == UDP4 || kind == UDP6 ? IPPROTO_UDP : 0);
	EQ(get_int(fd, SOL_SOCKET, SO_ERROR), 0);
	EQ(close(fd), 0);
}

SOCKETS("flags-of-socket")
{
	int fd = socket(kind_family((enum kind)kind), kind_type((enum kind)kind) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	NEED(fd >= 0);
	CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
	EQ(close(fd), 0);
	NEED((fd = a_socket(kind)) >= 0);
	EQ(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
	EQ(close(fd), 0);
}

SOCKETS("bind-twice-is-refused")
{
	int fd = a_bound(kind);
	struct name name = loopback(kind);

	/* A Unix socket that has a name may ask for any name again. */
	if (name.any.sa_family == AF_UNIX) {
		EQ(bind(fd, &name.any, name.length), 0);
		name.length += (socklen_t)snprintf(name.un.sun_path + 1, 60, "sockets-conformance-%d", getpid()) + 1;
	}
	FAILS(bind(fd, &name.any, name.length), EINVAL);
	EQ(close(fd), 0);
}

SOCKETS("bind-of-a-taken-address")
{
	int fd = a_bound(kind), other = a_socket(kind);
	struct name name = name_of(fd);

	if (kind_type((enum kind)kind) == SOCK_STREAM)
		NEED(listen(fd, 1) == 0);
	FAILS(bind(other, &name.any, name.length), EADDRINUSE);
	EQ(close(other), 0);
	/* Free again, unless another process is quicker. */
	for (int tries = 0; (other = close_and_keep(kind, fd)) < 0 && tries < 10; tries++)
		fd = a_bound(kind);
	CHECK(other >= 0);
	EQ(close(other), 0);
}

SOCKETS("bind-of-a-wrong-length")
{
	int fd = a_socket(kind);
	struct name name = loopback(kind);

	FAILS(bind(fd, &name.any, 1), EINVAL);
	EQ(close(fd), 0);
}

SOCKETS("fstat-says-socket")
{
	struct ends e = ends_of(kind);
	int type = get_int(e.a, SOL_SOCKET, SO_TYPE);
	char path[64], target[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", e.a);
	NEED(readlink(path, target, sizeof(target) - 1) > 0);
	CHECK(strncmp(target, "socket:", 7) == 0);
	EQ(type, kind_type((enum kind)kind));
	EQ(isatty(e.a), 0);
	ends_close(e);
}
