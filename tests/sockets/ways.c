/* Every call that moves octets of a stream, by number and name. */
#include "ways.h"

#include <sys/mman.h>
#include <sys/sendfile.h>

const char *const way_out_names[WAYS_OUT] = {"write",	"writev",   "pwritev2", "send",	 "sendto",
					     "sendmsg", "sendmmsg", "sendfile", "splice"};
const char *const way_in_names[WAYS_IN] = {"read",     "readv",	  "preadv2",  "recv",
					   "recvfrom", "recvmsg", "recvmmsg", "splice"};

/* In two, with an empty one between. */
struct parts {
	struct iovec v[3];
};

static struct parts parts_of(void *octets, size_t length)
{
	size_t first = length / 3;

	return (struct parts){{{octets, first}, {NULL, 0}, {(char *)octets + first, length - first}}};
}

static ssize_t sum(const struct mmsghdr *messages, int count)
{
	ssize_t total = 0;

	for (int i = 0; i < count; i++)
		total += messages[i].msg_len;
	return count < 0 ? -1 : total;
}

static ssize_t by_sendmmsg(int fd, struct parts *p)
{
	struct mmsghdr two[2] = {{.msg_hdr = {.msg_iov = &p->v[0], .msg_iovlen = 1}},
				 {.msg_hdr = {.msg_iov = &p->v[2], .msg_iovlen = 1}}};
	/* An empty first message is none to a stream. */
	bool one = p->v[0].iov_len == 0;

	return sum(two + one, sendmmsg(fd, two + one, one ? 1 : 2, 0));
}

static ssize_t by_recvmmsg(int fd, struct parts *p)
{
	struct mmsghdr two[2] = {{.msg_hdr = {.msg_iov = &p->v[0], .msg_iovlen = 1}},
				 {.msg_hdr = {.msg_iov = &p->v[2], .msg_iovlen = 1}}};
	bool one = p->v[0].iov_len == 0;

	int count = recvmmsg(fd, two + one, one ? 1 : 2, MSG_WAITFORONE, NULL);
	/* A first that was not filled, as more came for the second only: the octets join up. */
	if (count == 2 && two[0].msg_len < p->v[0].iov_len)
		memmove((char *)p->v[0].iov_base + two[0].msg_len, p->v[2].iov_base, two[1].msg_len);
	return sum(two + one, count);
}

static ssize_t by_sendfile(int fd, const void *octets, size_t length)
{
	int file = memfd_create("sockets-conformance", 0);
	off_t offset = 0;

	NEED(file >= 0 && write(file, octets, length) == (ssize_t)length);
	ssize_t sent = sendfile(fd, file, &offset, length);
	int error = errno;
	EQ(offset, sent > 0 ? sent : 0);
	EQ(close(file), 0);
	errno = error;
	return sent;
}

static void a_pipe(int two[2], size_t room)
{
	NEED(pipe(two) == 0);
	NEED(fcntl(two[0], F_SETPIPE_SZ, room < 65536 ? 65536 : room) > 0);
}

static ssize_t by_splice_out(int fd, const void *octets, size_t length)
{
	int in[2];

	a_pipe(in, length);
	NEED(write(in[1], octets, length) == (ssize_t)length);
	ssize_t sent = splice(in[0], NULL, fd, NULL, length, 0);
	int error = errno, left = 0;
	/* What the socket did not take stays in the pipe. */
	NEED(ioctl(in[0], FIONREAD, &left) == 0);
	EQ(left, (ssize_t)length - (sent > 0 ? sent : 0));
	EQ(close(in[0]), 0);
	EQ(close(in[1]), 0);
	errno = error;
	return sent;
}

static ssize_t by_splice_in(int fd, void *octets, size_t room)
{
	int out[2];

	a_pipe(out, room);
	ssize_t got = splice(fd, NULL, out[1], NULL, room, 0);
	int error = errno;
	if (got > 0)
		NEED(read(out[0], octets, (size_t)got) == got);
	EQ(close(out[0]), 0);
	EQ(close(out[1]), 0);
	errno = error;
	return got;
}

ssize_t put(enum way_out how, int fd, const void *octets, size_t length)
{
	struct parts p = parts_of((void *)octets, length);
	struct msghdr msg = {.msg_iov = p.v, .msg_iovlen = 3};

	switch (how) {
	case BY_WRITE: return write(fd, octets, length);
	case BY_WRITEV: return writev(fd, p.v, 3);
	/* Of no place (-1), as a stream has none: writev with flags. */
	case BY_PWRITEV2: return pwritev2(fd, p.v, 3, -1, 0);
	case BY_SEND: return send(fd, octets, length, 0);
	case BY_SENDTO: return sendto(fd, octets, length, 0, NULL, 0);
	case BY_SENDMSG: return sendmsg(fd, &msg, 0);
	case BY_SENDMMSG: return by_sendmmsg(fd, &p);
	case BY_SENDFILE: return by_sendfile(fd, octets, length);
	default: return by_splice_out(fd, octets, length);
	}
}

ssize_t get(enum way_in how, int fd, void *octets, size_t room)
{
	struct parts p = parts_of(octets, room);
	struct msghdr msg = {.msg_iov = p.v, .msg_iovlen = 3};

	switch (how) {
	case BY_READ: return read(fd, octets, room);
	case BY_READV: return readv(fd, p.v, 3);
	case BY_PREADV2: return preadv2(fd, p.v, 3, -1, 0);
	case BY_RECV: return recv(fd, octets, room, 0);
	case BY_RECVFROM: return recvfrom(fd, octets, room, 0, NULL, NULL);
	case BY_RECVMSG: return recvmsg(fd, &msg, 0);
	case BY_RECVMMSG: return by_recvmmsg(fd, &p);
	default: return by_splice_in(fd, octets, room);
	}
}
