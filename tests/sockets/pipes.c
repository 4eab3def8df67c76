/* Files and pipes into a stream and out of it: sendfile and splice, of much, of part, and into what is full. */
#include "flow.h"

#include <sys/mman.h>
#include <sys/sendfile.h>

enum { MUCH = 1 << 20 };

static int a_file_of(struct flow f, size_t size)
{
	int fd = memfd_create("sockets-conformance", 0);
	char octets[4096];

	NEED(fd >= 0);
	for (size_t done = 0; done < size; done += sizeof(octets)) {
		flow_next(&f, octets, sizeof(octets));
		size_t some = size - done < sizeof(octets) ? size - done : sizeof(octets);
		NEED(write(fd, octets, some) == (ssize_t)some);
	}
	NEED(lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

/* A pipe with room for this much. */
static struct ends a_pipe(size_t room)
{
	int two[2];

	NEED(pipe(two) == 0);
	NEED(fcntl(two[1], F_SETPIPE_SZ, room) >= (int)room);
	return (struct ends){two[0], two[1]};
}

/* Takes what is there, and no more. */
static void take_what_is_there(struct flow *in, int fd)
{
	char octets[16384];
	ssize_t got;

	while ((got = recv(fd, octets, sizeof(octets), MSG_DONTWAIT)) > 0)
		NEED(flow_is(in, octets, (size_t)got));
	NEED(got < 0 && (errno == EAGAIN || errno == EINTR));
}

/* --- sendfile */

TCPS("pipes.sendfile-of-more-than-the-file")
{
	struct ends e = ends_of(kind);
	struct flow in = {1, 0};
	int file = a_file_of(in, 5000);
	off_t offset = 4000;

	EQ(sendfile(e.a, file, NULL, 100000), 5000);
	EQ(sendfile(e.a, file, NULL, 100000), 0);
	NEED(flow_recv(&in, e.b, 5000));
	in.at = 4000;
	EQ(sendfile(e.a, file, &offset, 100000), 1000);
	EQ(offset, 5000);
	NEED(flow_recv(&in, e.b, 1000));
	offset = 90000;
	EQ(sendfile(e.a, file, &offset, 10), 0);
	EQ(wait_for(e.b, POLLIN, 0), 0);
	EQ(close(file), 0);
	ends_close(e);
}

TCPS("pipes.sendfile-to-a-full-socket-takes-a-part")
{
	struct ends e = tight_ends(kind);
	struct flow in = {2, 0};
	int file = a_file_of(in, MUCH), full = 0;
	off_t offset = 0;

	set_nonblocking(e.a, true);
	for (double end = deadline(); offset < MUCH && now() < end;) {
		off_t before = offset;
		ssize_t sent = sendfile(e.a, file, &offset, (size_t)(MUCH - offset));
		if (sent < 0) {
			NEED(errno == EAGAIN || errno == EINTR);
			full += errno == EAGAIN;
		}
		/* The offset tells what went, full or not. */
		EQ(offset - before, sent > 0 ? sent : 0);
		if (sent < 0)
			take_what_is_there(&in, e.b);
		NEED(in.at <= (uint64_t)offset);
	}
	CHECK(full > 0);
	EQ(offset, MUCH);
	NEED(flow_recv(&in, e.b, MUCH - in.at));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	EQ(close(file), 0);
	ends_close(e);
}

struct whole {
	int fd, file;
	off_t offset;
	ssize_t result;
};

static void *send_whole_file(void *of)
{
	struct whole *w = of;

	w->result = sendfile(w->fd, w->file, &w->offset, MUCH);
	return NULL;
}

TCPS("pipes.sendfile-waits-for-room")
{
	/* A signal lets it return with less. */
	calm();
	struct ends e = tight_ends(kind);
	struct flow in = {3, 0};
	struct whole w = {e.a, a_file_of(in, MUCH), 0, 0};
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, send_whole_file, &w) == 0);
	NEED(flow_recv(&in, e.b, MUCH));
	NEED(join_soon(thread, NULL));
	EQ(w.result, MUCH);
	EQ(w.offset, MUCH);
	EQ(close(w.file), 0);
	ends_close(e);
}

TCPS("pipes.sendfile-after-the-end-is-epipe")
{
	struct ends e = ends_of(kind);
	int file = a_file_of((struct flow){4, 0}, 100);

	EQ(shutdown(e.a, SHUT_WR), 0);
	FAILS(sendfile(e.a, file, NULL, 100), EPIPE);
	EQ(lseek(file, 0, SEEK_CUR), 0);
	EQ(close(file), 0);
	ends_close(e);
}

TCPS("pipes.sendfile-between-writes-of-odd-sizes")
{
	struct ends e = ends_of(kind);
	struct flow out = {5, 0}, in = out;
	int file = a_file_of(out, 60000);
	unsigned seed = 5;

	for (int i = 0; out.at < 50000; i++) {
		size_t length = 1 + any_below(&seed, 4000);
		if (i % 2) {
			off_t offset = (off_t)out.at;
			ssize_t sent = sendfile(e.a, file, &offset, length);
			NEED(sent > 0);
			out.at += (uint64_t)sent;
		} else {
			NEED(flow_send(&out, e.a, length));
		}
		if (out.at - in.at > 9000)
			NEED(flow_recv(&in, e.b, out.at - in.at));
	}
	NEED(flow_recv(&in, e.b, out.at - in.at));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	EQ(close(file), 0);
	ends_close(e);
}

/* --- splice */

TCPS("pipes.splice-behind-what-was-read-and-peeked")
{
	struct ends e = ends_of(kind), pipe = a_pipe(65536);
	struct flow out = {6, 0}, in = out;
	char octets[1000];
	int there;

	NEED(flow_send(&out, e.a, 1000) && octets_come(e.b, 1000));
	NEED(flow_recv(&in, e.b, 37));
	EQ(recv(e.b, octets, 500, MSG_PEEK), 500);
	EQ(splice(e.b, NULL, pipe.b, NULL, 100, 0), 100);
	EQ(read(pipe.a, octets, 1000), 100);
	NEED(flow_is(&in, octets, 100));
	EQ(ioctl(e.b, FIONREAD, &there), 0);
	EQ(there, 1000 - 137);
	NEED(flow_recv(&in, e.b, 1000 - 137));
	ends_close(pipe);
	ends_close(e);
}

TCPS("pipes.splice-into-a-full-pipe-leaves-the-rest")
{
	struct ends e = ends_of(kind), pipe = a_pipe(4096);
	struct flow out = {7, 0}, in = out;
	char octets[8192];

	NEED(flow_send(&out, e.a, 9000) && octets_come(e.b, 9000));
	ssize_t taken = splice(e.b, NULL, pipe.b, NULL, 9000, SPLICE_F_NONBLOCK);
	NEED(taken > 0 && taken < 9000);
	for (;;) {
		ssize_t more = splice(e.b, NULL, pipe.b, NULL, 9000, SPLICE_F_NONBLOCK);
		if (more < 0) {
			EQ(errno, EAGAIN);
			break;
		}
		NEED(more > 0);
		taken += more;
	}
	while (taken > 0) {
		ssize_t got = read(pipe.a, octets, sizeof(octets));
		NEED(got > 0 && flow_is(&in, octets, (size_t)got));
		taken -= got;
	}
	NEED(flow_recv(&in, e.b, 9000 - in.at));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	ends_close(pipe);
	ends_close(e);
}

TCPS("pipes.splice-into-a-full-socket-leaves-the-rest")
{
	struct ends e = tight_ends(kind), pipe = a_pipe(65536);
	struct flow out = {8, 0}, in = out;
	char octets[16384];
	int left = 0, full = 0;

	set_nonblocking(e.a, true);
	set_nonblocking(pipe.b, true);
	for (double end = deadline(); out.at < MUCH / 2 && now() < end;) {
		struct flow next = out;
		flow_next(&next, octets, sizeof(octets));
		ssize_t written = write(pipe.b, octets, sizeof(octets));
		if (written > 0)
			out.at += (uint64_t)written;
		NEED(ioctl(pipe.a, FIONREAD, &left) == 0);
		ssize_t sent = splice(pipe.a, NULL, e.a, NULL, 65536, SPLICE_F_NONBLOCK);
		if (sent < 0) {
			NEED(errno == EAGAIN || errno == EINTR);
			full += errno == EAGAIN && left > 0;
			take_what_is_there(&in, e.b);
			sent = 0;
		}
		int before = left;
		NEED(ioctl(pipe.a, FIONREAD, &left) == 0);
		EQ(left, before - sent);
	}
	CHECK(full > 0);
	while (left > 0) {
		ssize_t sent = splice(pipe.a, NULL, e.a, NULL, (size_t)left, 0);
		NEED(sent > 0 || errno == EAGAIN || errno == EINTR);
		left -= sent > 0 ? (int)sent : 0;
		take_what_is_there(&in, e.b);
	}
	NEED(flow_recv(&in, e.b, out.at - in.at));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	ends_close(pipe);
	ends_close(e);
}

TCPS("pipes.splice-waits-for-octets")
{
	struct ends e = ends_of(kind), pipe = a_pipe(65536);
	struct flow out = {9, 0}, in = out;
	char octets[200];
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		sleep_ms(20);
		NEED(flow_send(&out, e.a, 150));
		_exit(0);
	}
	EQ(TEMP_FAILURE_RETRY(splice(e.b, NULL, pipe.b, NULL, 1000, SPLICE_F_MOVE | SPLICE_F_MORE)), 150);
	EQ(read(pipe.a, octets, 200), 150);
	CHECK(flow_is(&in, octets, 150));
	CHECK(child_ended_well(child));
	ends_close(pipe);
	ends_close(e);
}

/* A server that gives back what it gets, without looking at it. */
static void *echo_by_splice(void *of)
{
	int fd = *(int *)of;
	struct ends pipe = a_pipe(65536);
	ssize_t got;

	while ((got = TEMP_FAILURE_RETRY(splice(fd, NULL, pipe.b, NULL, 65536, SPLICE_F_MOVE))) > 0)
		while (got > 0) {
			ssize_t sent = TEMP_FAILURE_RETRY(splice(pipe.a, NULL, fd, NULL, (size_t)got, SPLICE_F_MOVE));
			NEED(sent > 0);
			got -= sent;
		}
	EQ(got, 0);
	EQ(shutdown(fd, SHUT_WR), 0);
	ends_close(pipe);
	return NULL;
}

struct reader {
	struct flow flow;
	int fd;
};

static void *read_to_the_end(void *of)
{
	struct reader *r = of;

	flow_recv_to_the_end(&r->flow, r->fd);
	return NULL;
}

TCPS("pipes.splice-both-ways-is-an-echo")
{
	struct ends e = ends_of(kind);
	struct flow out = {10, 0};
	struct reader reader = {out, e.a};
	pthread_t server, back;
	unsigned seed = 10;

	NEED(pthread_create(&server, NULL, echo_by_splice, &e.b) == 0);
	NEED(pthread_create(&back, NULL, read_to_the_end, &reader) == 0);
	while (out.at < MUCH)
		NEED(flow_send(&out, e.a, 1 + any_below(&seed, 60000)));
	NEED(shutdown(e.a, SHUT_WR) == 0);
	NEED(join_soon(server, NULL));
	NEED(join_soon(back, NULL));
	EQ(reader.flow.at, out.at);
	ends_close(e);
}

TCPS("pipes.splice_f_more-is-held-back-for-the-next")
{
	struct ends e = ends_of(kind), pipe = a_pipe(65536);
	char got[16];

	EQ(write(pipe.b, "heldnext", 8), 8);
	EQ(splice(pipe.a, NULL, e.a, NULL, 4, SPLICE_F_MORE), 4);
	EQ(splice(pipe.a, NULL, e.a, NULL, 4, 0), 4);
	NEED(recv_all(e.b, got, 8));
	SAME(got, "heldnext", 8);
	/* And goes by itself where no next comes. */
	EQ(write(pipe.b, "last", 4), 4);
	EQ(splice(pipe.a, NULL, e.a, NULL, 4, SPLICE_F_MORE), 4);
	NEED(recv_all(e.b, got, 4));
	SAME(got, "last", 4);
	ends_close(pipe);
	ends_close(e);
}

TCPS("pipes.tee-is-not-for-sockets")
{
	struct ends e = ends_of(kind), pipe = a_pipe(4096);
	struct iovec v = {"mapped", 6};

	EQ(send(e.a, "x", 1, 0), 1);
	NEED(is_readable(e.b));
	FAILS(tee(e.b, pipe.b, 1, 0), EINVAL);
	FAILS(tee(pipe.a, e.a, 1, 0), EINVAL);
	FAILS(vmsplice(e.a, &v, 1, 0), EBADF);
	char got[4];
	EQ(recv(e.b, got, 4, 0), 1);
	ends_close(pipe);
	ends_close(e);
}
