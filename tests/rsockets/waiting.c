/* rpoll and rselect, of rsockets and of anything else. */
#include "env.h"

CASE("waiting.rpoll-of-rsockets-and-others")
{
	struct ends e = ends_of(AF_INET);
	int pair[2];

	NEED(pipe(pair) == 0);
	struct pollfd set[] = {{pair[0], POLLIN, 0}, {e.b, POLLIN, 0}, {e.listener, POLLIN, 0}, {-1, POLLIN, 0},
			       {e.a, POLLOUT, 0}};
	EQ(rpoll(set, 5, 0), 1);
	CHECK(set[4].revents == POLLOUT && !set[0].revents && !set[1].revents && !set[2].revents);
	EQ(write(pair[1], "x", 1), 1);
	EQ(rpoll(set, 4, patience), 1);
	EQ(set[0].revents, POLLIN);
	EQ(rsend(e.a, "x", 1, 0), 1);
	CHECK(wait_for(e.b, POLLIN, patience) & POLLIN);
	EQ(rpoll(set, 4, patience), 2);
	EQ(set[1].revents, POLLIN);
	EQ(set[2].revents, 0);
	ends_close(e);
}

CASE("waiting.rpoll-waits-as-long-as-it-is-told")
{
	struct ends e = ends_of(AF_INET);
	double begun = now();

	need_calm();
	EQ(wait_for(e.b, POLLIN, 100), 0);
	CHECKF(now() - begun > 0.09, "it took %.3f s", now() - begun);
	EQ(rpoll(NULL, 0, 1), 0);
	ends_close(e);
}

/* Behind the last octet framing follows, which is nothing to be read. */
CASE("waiting.framing-is-no-news")
{
	struct ends e = ends_of(AF_INET);
	static char octets[100000];

	for (int round = 0; round < 20; round++) {
		size_t length = 1 + (size_t)round * 4999;
		send_all(e.a, octets, length);
		recv_all(e.b, octets, length);
		EQ(wait_for(e.b, POLLIN, 5), 0);
		EQ(wait_for(e.a, POLLIN, 5), 0);
	}
	ends_close(e);
}

CASE("waiting.rselect-of-rsockets-and-others")
{
	struct ends e = ends_of(AF_INET);
	int pair[2];
	fd_set in, out;
	struct timeval soon = {0, 30000}, long_time = {patience / 1000 + 1, 0};

	need_calm();
	NEED(pipe(pair) == 0);
	FD_ZERO(&in);
	FD_SET(pair[0], &in);
	FD_SET(e.b, &in);
	EQ(rselect(FD_SETSIZE, &in, NULL, NULL, &soon), 0);
	CHECK(!FD_ISSET(e.b, &in));
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(pair[0], &in);
	FD_SET(e.b, &in);
	FD_SET(e.a, &out);
	EQ(rselect(FD_SETSIZE, &in, &out, NULL, &long_time), 1);
	CHECK(FD_ISSET(e.a, &out) && !FD_ISSET(e.b, &in));
	EQ(rsend(e.a, "x", 1, 0), 1);
	FD_ZERO(&in);
	FD_SET(pair[0], &in);
	FD_SET(e.b, &in);
	EQ(rselect(FD_SETSIZE, &in, NULL, NULL, &long_time), 1);
	CHECK(FD_ISSET(e.b, &in) && !FD_ISSET(pair[0], &in));
	ends_close(e);
}
