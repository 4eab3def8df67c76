/* POSIX asynchronous input and output on sockets: the C library reads and writes in threads of its own. */
#include "env.h"

#include <aio.h>

/* Waits until it is done; what came of it. */
static ssize_t done(struct aiocb *one)
{
	const struct aiocb *list[1] = {one};
	struct timespec limit = {1, 0};
	double end = deadline();

	while (aio_error(one) == EINPROGRESS && now() < end)
		aio_suspend(list, 1, &limit);
	NEED(aio_error(one) != EINPROGRESS);
	return aio_return(one);
}

static struct aiocb block(int fd, void *data, size_t length)
{
	/* The offset is of no meaning to a socket: reads and writes are those of read and write. */
	return (struct aiocb){.aio_fildes = fd,
			      .aio_buf = data,
			      .aio_nbytes = length,
			      .aio_sigevent.sigev_notify = SIGEV_NONE};
}

SOCKETS("aio.reads-what-comes-later")
{
	struct ends e = ends_of(kind);
	char got[8] = "";
	struct aiocb one = block(e.b, got, 8);

	NEED(aio_read(&one) == 0);
	EQ(aio_error(&one), EINPROGRESS);
	EQ(send(e.a, "later", 5, 0), 5);
	EQ(done(&one), 5);
	SAME(got, "later", 5);
	ends_close(e);
}

SOCKETS("aio.writes-behind-what-was-sent")
{
	struct ends e = ends_of(kind);
	char word[] = "last", got[8];
	struct aiocb one = block(e.a, word, 4);

	for (int i = 0; i < 8; i++)
		EQ(send(e.a, "send", 4, 0), 4);
	NEED(aio_write(&one) == 0);
	EQ(done(&one), 4);
	for (int i = 0; i < 8; i++) {
		NEED(recv_all(e.b, got, 4));
		SAME(got, "send", 4);
	}
	NEED(recv_all(e.b, got, 4));
	SAME(got, "last", 4);
	ends_close(e);
}

SOCKETS("aio.reads-one-datagram-or-what-is-there")
{
	struct ends e = ends_of(kind);
	char got[32] = "";
	bool stream = kind_type((enum kind)kind) == SOCK_STREAM;

	for (int i = 0; i < 2; i++) {
		struct aiocb one = block(e.b, got, sizeof(got));
		NEED(aio_read(&one) == 0);
		EQ(send(e.a, "1234", 4, 0), 4);
		EQ(done(&one), 4);
	}
	for (int i = 0; i < 3; i++)
		EQ(send(e.a, "1234", 4, 0), 4);
	NEED(!stream || octets_come(e.b, 12));
	struct aiocb one = block(e.b, got, sizeof(got));
	NEED(aio_read(&one) == 0);
	EQ(done(&one), stream ? 12 : 4);
	ends_close(e);
}

SOCKETS("aio.a-list-of-both")
{
	struct ends e = ends_of(kind);
	char word[] = "list", got[8] = "";
	struct aiocb in = block(e.b, got, 8), out = block(e.a, word, 4);
	struct aiocb *list[3] = {&in, NULL, &out};

	in.aio_lio_opcode = LIO_READ;
	out.aio_lio_opcode = LIO_WRITE;
	NEED(lio_listio(LIO_WAIT, list, 3, NULL) == 0);
	EQ(done(&in), 4);
	EQ(done(&out), 4);
	SAME(got, "list", 4);
	ends_close(e);
}

SOCKETS("aio.without-an-end-of-its-own-is-told")
{
	struct ends e = ends_of(kind);
	char got[8];
	struct aiocb one = block(-1, got, 8), sync = block(e.a, NULL, 0);

	/* The man page has it told at once or when it is asked for. */
	if (aio_read(&one) == 0) {
		EQ(done(&one), -1);
		EQ(aio_error(&one), EBADF);
	} else {
		EQ(errno, EBADF);
	}
	if (aio_fsync(O_SYNC, &sync) == 0) {
		EQ(done(&sync), -1);
		EQ(aio_error(&sync), EINVAL);
	} else {
		EQ(errno, EINVAL);
	}
	ends_close(e);
}

SOCKETS("aio.one-that-waits-its-turn-is-cancelled")
{
	struct ends e = ends_of(kind);
	char got[2][8];
	struct aiocb first = block(e.b, got[0], 8), second = block(e.b, got[1], 8);

	NEED(aio_read(&first) == 0 && aio_read(&second) == 0);
	EQ(aio_cancel(e.b, &second), AIO_CANCELED);
	EQ(aio_error(&second), ECANCELED);
	EQ(send(e.a, "x", 1, 0), 1);
	EQ(done(&first), 1);
	CHECK(stays_quiet(e.b));
	ends_close(e);
}
