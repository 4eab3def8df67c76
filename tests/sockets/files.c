/* Sockets where files are expected: sendfile, splice, and the names that large files and fortification use. */
#include "env.h"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

enum { SIZE = 50000 };

static int a_file(size_t size)
{
	int fd = memfd_create("sockets-conformance", 0);
	static char octets[1 << 20];

	NEED(fd >= 0 && size <= sizeof(octets));
	fill(octets, size, 7);
	NEED(write(fd, octets, size) == (ssize_t)size);
	NEED(lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

/* --- sendfile */

STREAMS("sendfile.from-the-position-of-the-file")
{
	struct ends e = ends_of(kind);
	int file = a_file(SIZE);
	static char got[SIZE];

	EQ(sendfile(e.a, file, NULL, 1000), 1000);
	EQ(lseek(file, 0, SEEK_CUR), 1000);
	NEED(recv_all(e.b, got, 1000));
	CHECK(holds(got, 1000, 7));
	EQ(close(file), 0);
	ends_close(e);
}

STREAMS("sendfile.from-an-offset")
{
	struct ends e = ends_of(kind);
	int file = a_file(SIZE);
	off_t offset = 256 * 7;
	static char got[SIZE];

	EQ(sendfile(e.a, file, &offset, 100), 100);
	EQ(offset, 256 * 7 + 100);
	EQ(lseek(file, 0, SEEK_CUR), 0);
	NEED(recv_all(e.b, got, 100));
	EQ(close(file), 0);
	ends_close(e);
}

STREAMS("sendfile.all-of-it")
{
	struct ends e = ends_of(kind);
	int file = a_file(SIZE);
	off_t offset = 0;
	static char got[SIZE];

	while (offset < SIZE) {
		ssize_t sent = sendfile(e.a, file, &offset, (size_t)(SIZE - offset));
		NEED(sent > 0);
		if (offset < SIZE)
			sleep_ms(1);
	}
	EQ(sendfile(e.a, file, &offset, 10), 0);
	NEED(recv_all(e.b, got, SIZE));
	CHECK(holds(got, SIZE, 7));
	EQ(close(file), 0);
	ends_close(e);
}

STREAMS("sendfile.interleaved-with-send")
{
	struct ends e = ends_of(kind);
	int file = a_file(SIZE);
	char got[16];

	EQ(send(e.a, "head:", 5, MSG_MORE), 5);
	EQ(sendfile(e.a, file, NULL, 4), 4);
	EQ(send(e.a, ":tail", 5, 0), 5);
	NEED(recv_all(e.b, got, 14));
	SAME(got, "head:", 5);
	CHECK(holds(got + 5, 4, 7));
	SAME(got + 9, ":tail", 5);
	EQ(close(file), 0);
	ends_close(e);
}

STREAMS("sendfile.into-a-full-socket")
{
	struct ends e = ends_of(kind);
	int file = a_file(1 << 20);
	off_t offset = 0;

	set_nonblocking(e.a, true);
	ssize_t sent;
	double end = deadline();
	do {
		sent = sendfile(e.a, file, &offset, 1 << 20);
		if (offset >= 1 << 20)
			offset = 0;
	} while (sent > 0 && now() < end);
	CHECK(sent == -1 && errno == EAGAIN);
	EQ(close(file), 0);
	ends_close(e);
}

STREAMS("sendfile.from-a-socket-is-refused")
{
	struct ends e = ends_of(kind);

	EQ(sendfile(e.a, e.b, NULL, 10), -1);
	CHECK(errno == EINVAL || errno == ESPIPE);
	ends_close(e);
}

DATAGRAMS("sendfile.makes-datagrams")
{
	struct ends e = ends_of(kind);
	int file = a_file(SIZE);
	static char got[SIZE];

	EQ(sendfile(e.a, file, NULL, 1000), 1000);
	EQ(recv(e.b, got, SIZE, 0), 1000);
	CHECK(holds(got, 1000, 7));
	EQ(close(file), 0);
	ends_close(e);
}

/* --- splice and tee */

STREAMS("splice.from-a-pipe-and-into-one")
{
	struct ends e = ends_of(kind);
	int in[2], out[2];
	char got[16] = "";

	NEED(pipe(in) == 0 && pipe(out) == 0);
	EQ(write(in[1], "through", 7), 7);
	EQ(splice(in[0], NULL, e.a, NULL, 7, 0), 7);
	NEED(is_readable(e.b));
	EQ(splice(e.b, NULL, out[1], NULL, 16, 0), 7);
	EQ(read(out[0], got, 16), 7);
	SAME(got, "through", 7);
	for (int i = 0; i < 2; i++) {
		EQ(close(in[i]), 0);
		EQ(close(out[i]), 0);
	}
	ends_close(e);
}

STREAMS("splice.with-nothing-there")
{
	struct ends e = ends_of(kind);
	int out[2];

	NEED(pipe(out) == 0);
	/* SPLICE_F_NONBLOCK is about the pipe. */
	set_nonblocking(e.b, true);
	FAILS(splice(e.b, NULL, out[1], NULL, 16, 0), EAGAIN);
	EQ(shutdown(e.a, SHUT_WR), 0);
	NEED(is_readable(e.b));
	EQ(splice(e.b, NULL, out[1], NULL, 16, 0), 0);
	ends_close(e);
}

STREAMS("splice.between-sockets-is-refused")
{
	struct ends e = ends_of(kind);

	FAILS(splice(e.a, NULL, e.b, NULL, 16, 0), EINVAL);
	ends_close(e);
}

STREAMS("splice.with-an-offset-is-refused")
{
	struct ends e = ends_of(kind);
	int out[2];
	loff_t offset = 0;

	NEED(pipe(out) == 0);
	EQ(splice(e.b, &offset, out[1], NULL, 16, 0), -1);
	/* splice(2) says ESPIPE; kernels from 6.x on say EINVAL. */
	CHECK(errno == ESPIPE || errno == EINVAL);
	ends_close(e);
}

STREAMS("vmsplice-goes-through-a-pipe")
{
	struct ends e = ends_of(kind);
	int in[2];
	char got[16] = "";
	struct iovec v = {"mapped", 6};

	NEED(pipe(in) == 0);
	EQ(vmsplice(in[1], &v, 1, 0), 6);
	EQ(splice(in[0], NULL, e.a, NULL, 6, 0), 6);
	NEED(recv_all(e.b, got, 6));
	SAME(got, "mapped", 6);
	ends_close(e);
}

SOCKETS("vmsplice-and-tee-are-for-pipes")
{
	struct ends e = ends_of(kind);
	int pair[2];
	struct iovec v = {"mapped", 6};

	NEED(pipe(pair) == 0);
	EQ(write(pair[1], "x", 1), 1);
	FAILS(vmsplice(e.a, &v, 1, 0), EBADF);
	FAILS(tee(pair[0], e.a, 1, 0), EINVAL);
	FAILS(tee(e.b, pair[1], 1, 0), EINVAL);
	CHECK(stays_quiet(e.b));
	EQ(close(pair[0]), 0);
	EQ(close(pair[1]), 0);
	ends_close(e);
}

STREAMS("copy_file_range-is-refused")
{
	struct ends e = ends_of(kind);
	int file = a_file(100);

	EQ(copy_file_range(file, NULL, e.a, NULL, 100, 0), -1);
	CHECK(errno == EINVAL || errno == EXDEV || errno == EOPNOTSUPP || errno == EBADF);
	EQ(close(file), 0);
	ends_close(e);
}

/* --- status */

SOCKETS("stat.is-a-socket")
{
	struct ends e = ends_of(kind);
	struct stat status;

	EQ(fstat(e.a, &status), 0);
	CHECK(S_ISSOCK(status.st_mode));
	ends_close(e);
}

SOCKETS("file-calls-are-refused")
{
	struct ends e = ends_of(kind);

	FAILS(ftruncate(e.a, 0), EINVAL);
	FAILS(fsync(e.a), EINVAL);
	FAILS(lseek(e.a, 0, SEEK_END), ESPIPE);
	/* TCP can be mapped (zero-copy receive). */
	if (kind != TCP4 && kind != TCP6)
		CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, e.a, 0) == MAP_FAILED);
	ends_close(e);
}

SOCKETS("fcntl.owner-and-signal")
{
	struct ends e = ends_of(kind);

	EQ(fcntl(e.b, F_SETOWN, getpid()), 0);
	EQ(fcntl(e.b, F_GETOWN), getpid());
	EQ(fcntl(e.b, F_SETSIG, SIGUSR1), 0);
	EQ(fcntl(e.b, F_GETSIG), SIGUSR1);
	ends_close(e);
}

SOCKETS("fcntl.asynchronous-notice")
{
	struct ends e = ends_of(kind);

	catch_signal(SIGIO, SA_RESTART);
	EQ(fcntl(e.b, F_SETOWN, getpid()), 0);
	NEED(fcntl(e.b, F_SETFL, fcntl(e.b, F_GETFL) | O_ASYNC) == 0);
	EQ(send(e.a, "x", 1, 0), 1);
	double end = deadline();
	while (!caught && now() < end)
		sleep_ms(1);
	CHECK(caught >= 1);
	ends_close(e);
}

SOCKETS("fcntl.of-nothing-known-is-invalid")
{
	struct ends e = ends_of(kind);

	FAILS(fcntl(e.a, 99999, 0), EINVAL);
	FAILS(fcntl(9999, F_GETFL), EBADF);
	ends_close(e);
}

SOCKETS("ioctl.of-nothing-known")
{
	struct ends e = ends_of(kind);
	int value = 0;

	EQ(ioctl(e.a, 0x12345678, &value), -1);
	CHECK(errno == ENOTTY || errno == EINVAL || errno == EOPNOTSUPP);
	ends_close(e);
}

/* --- the names that -D_FORTIFY_SOURCE gives: the compiler knows the room and not the length */

static volatile size_t five = 5;

SOCKETS("fortified.recv-read-and-recvfrom")
{
	struct ends e = ends_of(kind);
	char got[8];
	struct name from = {.length = sizeof(from.storage)};

	for (int i = 0; i < 3; i++)
		EQ(send(e.a, "hello", five, 0), 5);
	NEED(is_readable(e.b));
	EQ(recv(e.b, got, five, 0), 5);
	SAME(got, "hello", 5);
	EQ(read(e.b, got, five), 5);
	SAME(got, "hello", 5);
	EQ(recvfrom(e.b, got, five, 0, &from.any, &from.length), 5);
	SAME(got, "hello", 5);
	ends_close(e);
}

SOCKETS("fortified.poll-ppoll-and-fd_set")
{
	struct ends e = ends_of(kind);
	struct pollfd p[4] = {{e.b, POLLIN, 0}};
	volatile nfds_t one = 1;
	struct timespec limit = {5, 0};
	fd_set in;

	EQ(send(e.a, "x", 1, 0), 1);
	EQ(TEMP_FAILURE_RETRY(poll(p, one, patience)), 1);
	EQ(TEMP_FAILURE_RETRY(ppoll(p, one, &limit, NULL)), 1);
	volatile int fd = e.b;
	FD_ZERO(&in);
	FD_SET(fd, &in);
	EQ(TEMP_FAILURE_RETRY(select(fd + 1, &in, NULL, NULL, NULL)), 1);
	CHECK(FD_ISSET(fd, &in));
	ends_close(e);
}

static void overflow(void *of)
{
	struct ends *e = of;
	char got[8];
	volatile size_t too_much = 64;

	/* The C library ends the program before the call. */
	signal(SIGABRT, SIG_DFL);
	if (freopen("/dev/null", "w", stderr))
		recv(e->b, got, too_much, 0);
}

SOCKETS("fortified.more-than-the-room-ends-the-program")
{
#if defined(__USE_FORTIFY_LEVEL) && __USE_FORTIFY_LEVEL > 0
	struct ends e = ends_of(kind);
	int status = 0;
	EQ(send(e.a, "hello", 5, 0), 5);
	pid_t child = start_child(overflow, &e);
	EQ(TEMP_FAILURE_RETRY(waitpid(child, &status, 0)), child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	ends_close(e);
#else
	(void)overflow;
	SKIP("built without _FORTIFY_SOURCE");
#endif
}
