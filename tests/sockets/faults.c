/* Buffers that are not the program's: nothing of the stream is lost or doubled, whatever the call had moved by then. */
#include "flow.h"
#include "ways.h"

#include <sys/mman.h>

enum { PAGE = 4096, SMALL = 100 };

/* Pages of which the last may not be touched, or not be written to; the place where it begins. */
static char *before_the_edge(int pages, int protection)
{
	char *at = mmap(NULL, (size_t)(pages + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	NEED(at != MAP_FAILED);
	NEED(mprotect(at + (size_t)pages * PAGE, PAGE, protection) == 0);
	return at + (size_t)pages * PAGE;
}

/* What a call with `good` octets in front of the bad ones may give: as many of them as it moved, or EFAULT for none. */
static size_t moved(ssize_t result, size_t good)
{
	if (result < 0) {
		EQ(errno, EFAULT);
		return 0;
	}
	NEED((size_t)result <= good);
	return (size_t)result;
}

/* --- sending */

static void send_over_the_edge(long kind, enum way_out how, int pages)
{
	struct ends e = ends_of(kind);
	size_t good = pages > 1 ? (size_t)(pages - 1) * PAGE + SMALL : SMALL;
	char *edge = before_the_edge(pages, PROT_NONE);
	struct flow out = {1, 0}, in = out;

	for (int i = 0; i < 3; i++) {
		struct flow next = out;
		flow_next(&next, edge - good, good);
		errno = 0;
		out.at += moved(put(how, e.a, edge - good, good + SMALL), good);
	}
	/* The next call goes on where they stopped. */
	NEED(flow_send(&out, e.a, 50));
	NEED(shutdown(e.a, SHUT_WR) == 0);
	CHECK(flow_recv_to_the_end(&in, e.b));
	EQ(in.at, out.at);
	ends_close(e);
}

static void send_some(long all)
{
	send_over_the_edge(all % 2 ? TCP6 : TCP4, (enum way_out)(all / 2), 1);
}

static void send_much(long all)
{
	send_over_the_edge(all % 2 ? TCP6 : TCP4, (enum way_out)(all / 2), 12);
}

CASES
{
	for (long i = 0; i < 2 * WAYS_OUT_OF_MEMORY; i++) {
		ADD(send_some, i, "tcp%d.fault.%s-over-the-edge", i % 2 ? 6 : 4, way_out_names[i / 2]);
		ADD(send_much, i, "tcp%d.fault.%s-of-much-over-the-edge", i % 2 ? 6 : 4, way_out_names[i / 2]);
	}
}

TCPS("fault.a-bad-vector-between-good-ones")
{
	struct ends e = ends_of(kind);
	char good[2 * SMALL];
	struct iovec v[3] = {{good, SMALL}, {(void *)8, SMALL}, {good + SMALL, SMALL}};
	struct msghdr msg = {.msg_iov = v, .msg_iovlen = 3};
	struct flow out = {2, 0}, in = out, next = out;

	flow_next(&next, good, SMALL);
	errno = 0;
	out.at += moved(writev(e.a, v, 3), SMALL);
	next = out;
	flow_next(&next, good, SMALL);
	errno = 0;
	out.at += moved(sendmsg(e.a, &msg, 0), SMALL);
	NEED(flow_send(&out, e.a, 50));
	CHECK(flow_recv(&in, e.b, out.at));
	EQ(wait_for(e.b, POLLIN, 0), 0);

	/* Receiving into the same. */
	out = in = (struct flow){3, 0};
	NEED(flow_send(&out, e.a, 3 * SMALL));
	NEED(octets_come(e.b, 3 * SMALL));
	errno = 0;
	size_t got = moved(readv(e.b, v, 3), SMALL);
	CHECK(flow_is(&in, good, got));
	errno = 0;
	got = moved(recvmsg(e.b, &msg, 0), SMALL);
	CHECK(flow_is(&in, good, got));
	CHECK(flow_recv(&in, e.b, out.at - in.at));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	ends_close(e);
}

/* --- receiving */

static void recv_over_the_edge(long all)
{
	long kind = all % 2 ? TCP6 : TCP4;
	struct ends e = ends_of(kind);
	char *edge = before_the_edge(1, all / 2 % 2 ? PROT_READ : PROT_NONE);
	struct flow out = {4, 0}, in = out;

	for (int i = 0; i < 3; i++)
		NEED(flow_send(&out, e.a, SMALL));
	NEED(octets_come(e.b, 3 * SMALL));
	for (int i = 0; i < 2; i++) {
		errno = 0;
		size_t got = moved(get((enum way_in)(all / 4), e.b, edge - SMALL, 3 * SMALL), SMALL);
		CHECK(flow_is(&in, edge - SMALL, got));
	}
	/* What did not fit is there yet. */
	CHECK(flow_recv(&in, e.b, out.at - in.at));
	EQ(wait_for(e.b, POLLIN, 0), 0);
	flow_both_ways(e);
	ends_close(e);
}

CASES
{
	for (long i = 0; i < 4 * WAYS_INTO_MEMORY; i++)
		ADD(recv_over_the_edge, i, "tcp%d.fault.%s-%s", i % 2 ? 6 : 4, way_in_names[i / 4],
		    i / 2 % 2 ? "into-what-is-read-only" : "over-the-edge");
}

TCPS("fault.nothing-is-taken-by-a-call-with-nowhere-to-put-it")
{
	struct ends e = ends_of(kind);
	struct iovec nowhere = {(void *)8, SMALL};
	struct msghdr msg = {.msg_iov = &nowhere, .msg_iovlen = 1};
	struct flow out = {5, 0}, in = out;
	int there = 0;

	NEED(flow_send(&out, e.a, SMALL));
	NEED(octets_come(e.b, SMALL));
	FAILS(recv(e.b, nowhere.iov_base, SMALL, 0), EFAULT);
	FAILS(recv(e.b, nowhere.iov_base, SMALL, MSG_PEEK), EFAULT);
	FAILS(read(e.b, nowhere.iov_base, SMALL), EFAULT);
	FAILS(readv(e.b, &nowhere, 1), EFAULT);
	FAILS(recvmsg(e.b, &msg, 0), EFAULT);
	EQ(ioctl(e.b, FIONREAD, &there), 0);
	EQ(there, SMALL);
	CHECK(flow_recv(&in, e.b, SMALL));
	ends_close(e);
}

TCPS("fault.nothing-is-sent-from-nowhere")
{
	struct ends e = ends_of(kind);
	struct iovec nowhere = {(void *)8, SMALL};
	struct msghdr msg = {.msg_iov = &nowhere, .msg_iovlen = 1};

	FAILS(send(e.a, nowhere.iov_base, SMALL, 0), EFAULT);
	FAILS(write(e.a, nowhere.iov_base, SMALL), EFAULT);
	FAILS(writev(e.a, &nowhere, 1), EFAULT);
	FAILS(sendmsg(e.a, &msg, 0), EFAULT);
	CHECK(stays_quiet(e.b));
	flow_both_ways(e);
	ends_close(e);
}

TCPS("fault.vectors-and-messages-that-are-nowhere")
{
	struct ends e = ends_of(kind);
	/* The compiler would warn of what it knows. */
	void *volatile nowhere = (void *)8;

	FAILS(writev(e.a, nowhere, 1), EFAULT);
	FAILS(sendmsg(e.a, nowhere, 0), EFAULT);
	FAILS(sendmmsg(e.a, nowhere, 1, 0), EFAULT);
	EQ(send(e.a, "kept", 4, 0), 4);
	NEED(octets_come(e.b, 4));
	FAILS(readv(e.b, nowhere, 1), EFAULT);
	FAILS(recvmsg(e.b, nowhere, 0), EFAULT);
	FAILS(recvmmsg(e.b, nowhere, 1, 0, NULL), EFAULT);
	char got[8];
	EQ(recv(e.b, got, 8, 0), 4);
	SAME(got, "kept", 4);
	ends_close(e);
}

TCPS("fault.counts-and-names-that-go-nowhere")
{
	struct ends e = ends_of(kind);
	void *volatile nowhere = (void *)8;
	socklen_t length = 128;

	FAILS(ioctl(e.b, FIONREAD, nowhere), EFAULT);
	FAILS(ioctl(e.b, SIOCATMARK, nowhere), EFAULT);
	FAILS(getsockname(e.a, nowhere, &length), EFAULT);
	FAILS(getpeername(e.a, nowhere, &length), EFAULT);
	FAILS(getsockopt(e.a, SOL_SOCKET, SO_RCVLOWAT, nowhere, &length), EFAULT);
	flow_both_ways(e);
	ends_close(e);
}
