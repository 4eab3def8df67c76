/* Descriptors: copies, ranges, limits, and what is no socket. */
#include "env.h"
#include "waiter.h"

#include <sys/stat.h>

/* --- copies */

SOCKETS("dup.shares-the-socket")
{
	struct ends e = ends_of(kind);
	int copy = dup(e.a);

	NEED(copy >= 0);
	CHECK(copy != e.a);
	talks(copy, e.b);
	talks(e.b, copy);
	EQ(close(e.a), 0);
	/* Only the last close ends it. */
	talks(copy, e.b);
	talks(e.b, copy);
	EQ(close(copy), 0);
	if (kind_type((enum kind)kind) == SOCK_STREAM) {
		char got[4];
		EQ(recv(e.b, got, 4, 0), 0);
	}
	EQ(close(e.b), 0);
}

SOCKETS("dup.shares-the-status-flags-not-the-descriptor-flags")
{
	struct ends e = ends_of(kind);
	int copy = dup(e.a);

	set_nonblocking(copy, true);
	CHECK(fcntl(e.a, F_GETFL) & O_NONBLOCK);
	NEED(fcntl(copy, F_SETFD, FD_CLOEXEC) == 0);
	EQ(fcntl(e.a, F_GETFD), 0);
	EQ(close(copy), 0);
	ends_close(e);
}

SOCKETS("dup2.takes-the-number")
{
	struct ends e = ends_of(kind);

	EQ(dup2(e.a, 200), 200);
	talks(200, e.b);
	EQ(fcntl(200, F_GETFD), 0);
	EQ(close(200), 0);
	talks(e.a, e.b);
	ends_close(e);
}

SOCKETS("dup2.closes-what-was-there")
{
	struct ends e = ends_of(kind), other = ends_of(kind);
	char got[8];

	EQ(dup2(other.a, e.a), e.a);
	talks(e.a, other.b);
	/* The first one's socket is gone. */
	if (kind_type((enum kind)kind) == SOCK_STREAM)
		EQ(recv(e.b, got, 8, 0), 0);
	EQ(close(other.a), 0);
	talks(e.a, other.b);
	ends_close(e);
	EQ(close(other.b), 0);
}

SOCKETS("dup2.onto-itself")
{
	struct ends e = ends_of(kind);

	NEED(fcntl(e.a, F_SETFD, FD_CLOEXEC) == 0);
	EQ(dup2(e.a, e.a), e.a);
	EQ(fcntl(e.a, F_GETFD), FD_CLOEXEC);
	talks(e.a, e.b);
	FAILS(dup2(9999, 9999), EBADF);
	ends_close(e);
}

SOCKETS("dup2.of-a-file-onto-a-socket")
{
	struct ends e = ends_of(kind);
	int file = open("/dev/null", O_RDWR);
	char got[8];

	NEED(file >= 0);
	EQ(dup2(file, e.a), e.a);
	EQ(write(e.a, "x", 1), 1);
	EQ(read(e.a, got, 1), 0);
	FAILS(send(e.a, "x", 1, 0), ENOTSOCK);
	FAILS(getsockname(e.a, NULL, NULL), ENOTSOCK);
	if (kind_type((enum kind)kind) == SOCK_STREAM)
		EQ(recv(e.b, got, 8, 0), 0);
	EQ(close(file), 0);
	ends_close(e);
}

SOCKETS("dup2.of-a-socket-onto-a-file")
{
	struct ends e = ends_of(kind);
	int file = open("/dev/null", O_RDWR);

	NEED(file >= 0);
	EQ(dup2(e.a, file), file);
	talks(file, e.b);
	EQ(write(file, "x", 1), 1);
	EQ(close(file), 0);
	ends_close(e);
}

SOCKETS("dup3.flags")
{
	struct ends e = ends_of(kind);

	EQ(dup3(e.a, 201, O_CLOEXEC), 201);
	EQ(fcntl(201, F_GETFD), FD_CLOEXEC);
	talks(201, e.b);
	FAILS(dup3(e.a, e.a, 0), EINVAL);
	FAILS(dup3(e.a, 202, 1), EINVAL);
	EQ(close(201), 0);
	ends_close(e);
}

SOCKETS("fcntl.dupfd")
{
	struct ends e = ends_of(kind);
	int copy = fcntl(e.a, F_DUPFD, 150);

	CHECK(copy >= 150);
	EQ(fcntl(copy, F_GETFD), 0);
	talks(copy, e.b);
	int other = fcntl(e.a, F_DUPFD_CLOEXEC, 150);
	CHECK(other >= 150 && other != copy);
	EQ(fcntl(other, F_GETFD), FD_CLOEXEC);
	FAILS(fcntl(e.a, F_DUPFD, -1), EINVAL);
	EQ(close(copy), 0);
	EQ(close(other), 0);
	ends_close(e);
}

SOCKETS("descriptor.the-lowest-free-number-is-taken")
{
	struct ends e = ends_of(kind);
	int copy = dup(e.a), low;

	NEED(copy >= 0);
	EQ(close(e.a), 0);
	low = dup(copy);
	EQ(low, e.a);
	EQ(close(copy), 0);
	e.a = low;
	ends_close(e);
}

SOCKETS("descriptor.socket-takes-the-lowest-free-number")
{
	struct ends e = ends_of(kind);

	EQ(close(0), 0);
	int fd = a_socket(kind);
	EQ(fd, 0);
	EQ(close(fd), 0);
	ends_close(e);
}

static int call_close_range(unsigned first, unsigned last, unsigned flags)
{
	int result = close_range(first, last, (int)flags);

	if (result < 0 && errno == ENOSYS)
		SKIP("this kernel has no close_range");
	return result;
}

SOCKETS("close_range.closes")
{
	struct ends e = ends_of(kind);
	char got[8];

	NEED(dup2(e.a, 300) == 300 && dup2(e.a, 305) == 305);
	EQ(call_close_range(300, 310, 0), 0);
	FAILS(send(300, "x", 1, 0), EBADF);
	FAILS(send(305, "x", 1, 0), EBADF);
	talks(e.a, e.b);
	NEED(dup2(e.a, 300) == 300);
	EQ(close(e.a), 0);
	EQ(call_close_range(300, ~0u, 0), 0);
	if (kind_type((enum kind)kind) == SOCK_STREAM)
		EQ(recv(e.b, got, 8, 0), 0);
	EQ(close(e.b), 0);
}

SOCKETS("close_range.marks")
{
	struct ends e = ends_of(kind);

	NEED(dup2(e.a, 300) == 300);
	int result = close_range(300, 300, 4 /* CLOSE_RANGE_CLOEXEC */);
	if (result < 0 && (errno == EINVAL || errno == ENOSYS))
		SKIP("this kernel has no CLOSE_RANGE_CLOEXEC");
	EQ(fcntl(300, F_GETFD), FD_CLOEXEC);
	talks(300, e.b);
	FAILS(call_close_range(5, 3, 0), EINVAL);
	EQ(close(300), 0);
	ends_close(e);
}

SOCKETS("closefrom")
{
	struct ends e = ends_of(kind);

	NEED(dup2(e.a, 300) == 300);
	closefrom(290);
	FAILS(send(300, "x", 1, 0), EBADF);
	talks(e.a, e.b);
	ends_close(e);
}

/* --- the limit */

/* No number is free from here on. */
static struct rlimit limited_to_what_is_open(void)
{
	struct rlimit limit;
	int next = dup(0);

	NEED(next >= 0 && close(next) == 0);
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = (rlim_t)next;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	return limit;
}

/* What runs at a program's end may open files. */
static void unlimited(void)
{
	struct rlimit limit;

	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* --- all numbers closed, as a daemon does, those among them that the program never opened */

enum { FEW = 256 };

/* So few that nobody finds numbers far above the program's. */
static void limited_to_few(void)
{
	struct rlimit limit;

	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = FEW;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void note_open(bool is_open[FEW])
{
	for (int fd = 0; fd < FEW; fd++)
		is_open[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* Closes the numbers that were not open before and gives each to a file of the program's; how many there were. */
static int given_to_files(const bool before[FEW], bool files[FEW])
{
	int count = 0;

	for (int fd = 0; fd < FEW; fd++) {
		files[fd] = !before[fd] && fcntl(fd, F_GETFD) >= 0;
		if (!files[fd])
			continue;
		EQ(close(fd), 0);
		int file = open("/dev/null", O_WRONLY);
		NEED(file >= 0 && (file == fd || dup2(file, fd) == fd));
		if (file != fd)
			EQ(close(file), 0);
		count++;
	}
	return count;
}

static void are_files_still(const bool files[FEW])
{
	struct stat stat;

	for (int fd = 0; fd < FEW; fd++)
		if (files[fd])
			CHECK(fstat(fd, &stat) == 0 && S_ISCHR(stat.st_mode));
}

TCPS("descriptors.all-numbers-closed-while-a-rest-leaves")
{
	bool before[FEW], files[FEW];
	static char octets[65536];

	limited_to_few();
	struct ends e = ends_of(kind);
	talks(e.a, e.b);
	NEED(fill_up(e.b) > 0);
	note_open(before);
	EQ(close(e.b), 0);
	given_to_files(before, files);
	/* Longer than anybody waits until he looks again. */
	for (double end = now() + 0.3; now() < end; sleep_ms(1))
		if (recv(e.a, octets, sizeof(octets), MSG_DONTWAIT) == 0)
			break;
	sleep_ms(20);
	are_files_still(files);
	EQ(close(e.a), 0);
}

TCPS("descriptors.all-numbers-closed-while-a-call-waits")
{
	calm();
	bool before[FEW], files[FEW];

	limited_to_few();
	struct ends e = ends_of(kind);
	talks(e.a, e.b);
	struct waiter w = {.fd = e.b};
	pthread_t thread = waiting(&w, wait_recv);
	note_open(before);
	EQ(close(e.b), 0);
	before[e.b] = false;
	given_to_files(before, files);
	EQ(send(e.a, "late", 4, MSG_NOSIGNAL), 4);
	NEED(join_soon(thread, NULL));
	/* The octets, as with the kernel, or what says that there is no descriptor any more. */
	CHECK(w.result == 4 || (w.result == -1 && w.error == EBADF));
	are_files_still(files);
	EQ(close(e.a), 0);
}

SOCKETS("limit.reached-by-socket-and-dup")
{
	struct ends e = ends_of(kind);
	struct rlimit limit = limited_to_what_is_open();

	FAILS(socket(kind_family((enum kind)kind), kind_type((enum kind)kind), 0), EMFILE);
	FAILS(dup(e.a), EMFILE);
	FAILS(dup2(e.a, (int)limit.rlim_cur), EBADF);
	FAILS(fcntl(e.a, F_DUPFD, 0), EMFILE);
	FAILS(epoll_create1(0), EMFILE);
	/* What is there works on. */
	talks(e.a, e.b);
	EQ(wait_for(e.a, POLLOUT, patience), POLLOUT);
	EQ(close(0), 0);
	int fd = a_socket(kind);
	EQ(fd, 0);
	ends_close(e);
	unlimited();
}

STREAMS("limit.reached-by-accept")
{
	int listener = a_listener(kind, 4), fd = a_socket(kind);
	struct name name = name_of(listener);

	NEED(connect(fd, &name.any, name.length) == 0);
	limited_to_what_is_open();
	FAILS(accept(listener, NULL, NULL), EMFILE);
	/* The connection is not lost. */
	NEED(dup2(fd, 0) == 0 && close(fd) == 0);
	int got = accept(listener, NULL, NULL);
	CHECK(got >= 0);
	talks(0, got);
	EQ(close(got), 0);
	EQ(close(listener), 0);
	unlimited();
}

static void pair_of(long type)
{
	int two[2];
	char got[8] = "";

	NEED(socketpair(AF_UNIX, (int)type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, two) == 0);
	EQ(fcntl(two[0], F_GETFD), FD_CLOEXEC);
	CHECK(fcntl(two[1], F_GETFL) & O_NONBLOCK);
	FAILS(recv(two[1], got, 8, 0), EAGAIN);
	EQ(send(two[0], "pair", 4, 0), 4);
	EQ(recv(two[1], got, 8, 0), 4);
	EQ(close(two[0]), 0);
	EQ(close(two[1]), 0);
}

CASES
{
	ADD(pair_of, SOCK_STREAM, "socketpair.stream");
	ADD(pair_of, SOCK_DGRAM, "socketpair.datagram");
	ADD(pair_of, SOCK_SEQPACKET, "socketpair.seqpacket");
}

CASE("socketpair.of-the-internet-is-refused")
{
	int two[2];

	FAILS(socketpair(AF_INET, SOCK_STREAM, 0, two), EOPNOTSUPP);
}

/* --- other things that look like descriptors of sockets */

CASE("other.pipes-files-and-eventfds-are-no-sockets")
{
	int two[2];
	char got[8];
	struct msghdr msg = {};
	socklen_t length = sizeof(got);

	NEED(pipe(two) == 0);
	FAILS(send(two[1], "x", 1, 0), ENOTSOCK);
	FAILS(recv(two[0], got, 1, 0), ENOTSOCK);
	FAILS(sendmsg(two[1], &msg, 0), ENOTSOCK);
	FAILS(recvmsg(two[0], &msg, 0), ENOTSOCK);
	FAILS(listen(two[0], 1), ENOTSOCK);
	FAILS(accept(two[0], NULL, NULL), ENOTSOCK);
	FAILS(shutdown(two[0], SHUT_RD), ENOTSOCK);
	FAILS(getsockopt(two[0], SOL_SOCKET, SO_TYPE, got, &length), ENOTSOCK);
	FAILS(setsockopt(two[0], SOL_SOCKET, SO_KEEPALIVE, got, 4), ENOTSOCK);
	EQ(write(two[1], "pipe", 4), 4);
	EQ(wait_for(two[0], POLLIN, patience), POLLIN);
	EQ(read(two[0], got, 8), 4);
	EQ(close(two[0]), 0);
	EQ(close(two[1]), 0);
}

CASE("other.families-and-types-of-none")
{
	FAILS(socket(9999, SOCK_STREAM, 0), EAFNOSUPPORT);
	FAILS(socket(AF_INET, 99, 0), EINVAL);
	FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
	FAILS(socket(AF_INET, SOCK_STREAM | 0x100000, 0), EINVAL);
}
