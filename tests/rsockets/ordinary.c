/* Ordinary calls on rsockets, which `weft run` has seen, too; and what happens where nobody sees them. */
#include "env.h"

CASE("ordinary.close-is-as-good-as-rclose")
{
	enum { OCTETS = 1 << 20 };
	static unsigned char sent[OCTETS], got[OCTETS];
	struct ends e = ends_of(AF_INET);
	char octet;

	need_ordinary_calls();
	fill(sent, OCTETS, 4);
	set_nonblocking(e.a, true);
	ssize_t took = rsend(e.a, sent, OCTETS, 0);
	NEED(took > 0);
	EQ(close(e.a), 0);
	FAILS(rsend(e.a, "x", 1, 0), EBADF);
	CHECK(recv_all(e.b, got, (size_t)took));
	holds(got, (size_t)took, 4);
	EQ(rrecv(e.b, &octet, 1, 0), 0);
	EQ(close(e.b), 0);
	EQ(close(e.listener), 0);
}

CASE("ordinary.a-duplicate-is-the-same-rsocket")
{
	struct ends e = ends_of(AF_INET);

	need_ordinary_calls();
	int other = dup(e.a), chosen = dup2(e.a, 600);
	NEED(other >= 0 && chosen == 600);
	talks(other, e.b);
	talks(e.b, 600);
	EQ(rclose(e.a), 0);
	stays_quiet(e.b);
	talks(600, e.b);
	EQ(rclose(600), 0);
	talks(other, e.b);
	talks(e.b, other);
	EQ(close(other), 0);
}

/* As a server gives a child its connection for standard input and output. */
CASE("ordinary.an-rsocket-takes-the-place-of-another")
{
	struct ends first = ends_of(AF_INET), second = ends_of(AF_INET);
	char octet;

	need_ordinary_calls();
	EQ(dup2(second.a, first.a), first.a);
	EQ(rrecv(first.b, &octet, 1, 0), 0);
	talks(first.a, second.b);
	EQ(rclose(second.a), 0);
	talks(second.b, first.a);
}

CASE("ordinary.reads-and-writes-are-of-the-stream")
{
	struct ends e = ends_of(AF_INET);
	char word[6] = "";

	need_ordinary_calls();
	need_calm();
	EQ(write(e.a, "hello", 6), 6);
	EQ(rrecv(e.b, word, 6, MSG_WAITALL), 6);
	SAME(word, "hello", 6);
	EQ(rsend(e.b, "world", 6, 0), 6);
	EQ(recv(e.a, word, 6, MSG_WAITALL), 6);
	SAME(word, "world", 6);
	struct pollfd p = {e.a, POLLIN, 0};
	EQ(poll(&p, 1, QUIET), 0);
	ends_close(e);
}

/* A socket that is full has a rest, which a thread sends when there is room: not to what has its number by then. */
CASE("ordinary.a-close-that-nobody-saw-harms-nobody")
{
	struct ends e = ends_of(AF_INET);
	static char octets[65536];
	char seen[64];
	int pair[2];

	if (ordinary_calls_are_seen())
		SKIP("every call is seen in this way of loading");
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	fill_up(e.a);
	EQ(dup2(pair[0], e.a), e.a);
	for (double end = now() + 0.3; now() < end;)
		if (rrecv(e.b, octets, sizeof(octets), MSG_DONTWAIT) < 0)
			sleep_ms(1);
	FAILS(rsend(e.a, "x", 1, 0), EBADF);
	FAILS(recv(pair[1], seen, sizeof(seen), MSG_DONTWAIT), EAGAIN);
	/* The number is taken again, for another rsocket, and nothing of the first is in it. */
	EQ(close(e.a), 0);
	struct ends anew = ends_of(AF_INET);
	talks(anew.a, anew.b);
	talks(anew.b, anew.a);
}
