/* What is left of a connection that the other end has reset: a server that does not want the rest of a request answers
   early, and closes with octets unread. */
#include "flow.h"
#include "ready.h"

enum { ANSWER_OCTETS = 13 };

/* What is left of a connection whose other end has done so. `full`: as much was sent before as the socket takes. */
static int early_answered(long kind, bool full)
{
	struct ends e = ends_of(kind);
	char octet;

	EQ(send(e.b, "x", 1, 0), 1);
	EQ(recv(e.a, &octet, 1, 0), 1);
	EQ(send(e.a, "request", 7, 0), 7);
	NEED(octets_come(e.b, 7));
	set_nonblocking(e.a, true);
	if (full)
		fill_up(e.a);
	EQ(send(e.b, "413 too large", ANSWER_OCTETS, 0), ANSWER_OCTETS);
	NEED(octets_come(e.a, ANSWER_OCTETS));
	EQ(close(e.b), 0);
	NEED(wait_for(e.a, 0, patience) & POLLHUP);
	return e.a;
}

static void answer_is_read(int fd)
{
	char got[64];

	EQ(recv(fd, got, sizeof(got), 0), ANSWER_OCTETS);
	SAME(got, "413 too large", ANSWER_OCTETS);
}

TCPS("reset.what-came-before-a-reset-is-read-after-a-send-failed")
{
	for (int full = 0; full < 2; full++) {
		int fd = early_answered(kind, full);
		char octet;

		/* Whoever looks after the connection has time to meet the reset. */
		sleep_ms(QUIET);
		FAILS(send(fd, "more", 4, MSG_NOSIGNAL), ECONNRESET);
		FAILS(send(fd, "more", 4, MSG_NOSIGNAL), EPIPE);
		answer_is_read(fd);
		EQ(recv(fd, &octet, 1, 0), 0);
		EQ(close(fd), 0);
	}
}

TCPS("reset.a-reset-is-told-behind-what-came-before-it")
{
	for (int full = 0; full < 2; full++) {
		int fd = early_answered(kind, full);
		char octet;

		sleep_ms(QUIET);
		answer_is_read(fd);
		FAILS(recv(fd, &octet, 1, 0), ECONNRESET);
		EQ(recv(fd, &octet, 1, 0), 0);
		FAILS(send(fd, "more", 4, MSG_NOSIGNAL), EPIPE);
		EQ(close(fd), 0);
	}
}

TCPS("reset.a-reset-is-an-error-of-the-socket-beside-what-came-before-it")
{
	for (int full = 0; full < 2; full++) {
		int fd = early_answered(kind, full);

		sleep_ms(QUIET);
		EQ(get_int(fd, SOL_SOCKET, SO_ERROR), ECONNRESET);
		EQ(get_int(fd, SOL_SOCKET, SO_ERROR), 0);
		FAILS(send(fd, "more", 4, MSG_NOSIGNAL), EPIPE);
		answer_is_read(fd);
		EQ(close(fd), 0);
	}
}
