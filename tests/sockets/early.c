/* What a program does on a connection over DDP before the other end has answered: write, end, ask for readiness. */
#include "asked.h"
#include "ready.h"

#include <sys/eventfd.h>

/* A client that has written into a connection that nobody has accepted yet until that took no more. */
struct early {
	int listener, client, set;
	size_t sent;
};

static size_t writes_until_full(int fd)
{
	static const char octets[4096];
	ssize_t now;
	size_t all = 0;

	while ((now = send(fd, octets, sizeof(octets), MSG_DONTWAIT)) > 0)
		all += (size_t)now;
	EQ(errno, EAGAIN);
	return all;
}

static struct early full_early(long kind, uint32_t events)
{
	struct early e = {.listener = listener_of(kind, WEFT_DDP_REQUIRE), .client = a_socket(kind), .set = a_poll()};
	struct name at = name_of(e.listener);

	NEED(ask(e.client, WEFT_DDP_REQUIRE) == 0 && connect(e.client, &at.any, at.length) == 0);
	watch(e.set, e.client, events);
	e.sent = writes_until_full(e.client);
	return e;
}

/* The other end accepts and takes what was written. */
static int accepted_early(struct early *e)
{
	char room[4096];
	int fd = accept(e->listener, NULL, NULL);

	NEED(fd >= 0);
	for (size_t got = 0, left; got < e->sent; got += left) {
		left = e->sent - got < sizeof(room) ? e->sent - got : sizeof(room);
		NEED(recv_all(fd, room, left));
	}
	return fd;
}

static void end_early(struct early *e, int fd)
{
	EQ(close(fd), 0);
	EQ(close(e->client), 0);
	EQ(close(e->set), 0);
	EQ(close(e->listener), 0);
}

TCPS("early.an-edge-tells-of-room-when-the-answer-has-come")
{
	need_weft();
	struct early e = full_early(kind, EPOLLIN | EPOLLOUT | EPOLLET);
	struct epoll_event got = {0};

	/* Of the connect itself there may be one. */
	events_of(e.set, &got, QUIET);
	int fd = accepted_early(&e);
	EQ(events_of(e.set, &got, patience), 1);
	CHECK(got.events & EPOLLOUT);
	EQ(send(e.client, "x", 1, MSG_DONTWAIT), 1);
	end_early(&e, fd);
}

TCPS("early.who-waits-for-room-is-told-when-the-answer-has-come")
{
	calm();
	need_weft();
	struct early e = full_early(kind, EPOLLOUT);
	struct epoll_event got;
	struct timespec before, after;

	NEED(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before) == 0);
	EQ(wait_for(e.client, POLLOUT, 300), 0);
	EQ(select_one(e.client, true, 300), 0);
	EQ(events_of(e.set, &got, 300), 0);
	NEED(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after) == 0);
	double used = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
	CHECKF(used < 0.3, "it used %g s of a processor", used);
	int fd = accepted_early(&e);
	CHECK(wait_for(e.client, POLLOUT, patience) & POLLOUT);
	EQ(select_one(e.client, true, patience), 1);
	EQ(events_of(e.set, &got, patience), 1);
	EQ(send(e.client, "x", 1, MSG_DONTWAIT), 1);
	end_early(&e, fd);
}

TCPS("early.a-blocked-sender-times-out")
{
	calm();
	need_weft();
	struct early e = full_early(kind, EPOLLOUT);
	struct timeval time = {.tv_usec = 300000};

	NEED(setsockopt(e.client, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time)) == 0);
	double began = now();
	FAILS(send(e.client, "x", 1, 0), EAGAIN);
	CHECKF(now() - began >= 0.25, "it waited for %g s", now() - began);
	end_early(&e, accepted_early(&e));
}

/* Whether the connection is DDP, now that it is known. */
static bool is_ddp(int fd)
{
	struct weft_ddp status;
	socklen_t length = sizeof(status);

	NEED(getsockopt(fd, SOL_WEFT, WEFT_SO_DDP, &status, &length) == 0);
	return status.state == WEFT_DDP_STATE_DDP;
}

enum { CLIENTS = 30 };

/* A server in another process: who asks itself knows too much. */
struct server {
	long kind;
	int tells[2];
};

static void serve(void *of)
{
	struct server *server = of;
	int listener = listener_of(server->kind, WEFT_DDP_PREFER);
	struct name at = name_of(listener);
	char octet;

	NEED(write(server->tells[1], &at, sizeof(at)) == sizeof(at));
	for (int n = 0; n < CLIENTS; n++) {
		int fd = accept(listener, NULL, NULL);
		NEED(fd >= 0);
		EQ(recv(fd, &octet, 1, 0), 0);
		EQ(send(fd, "answer", 6, 0), 6);
		EQ(close(fd), 0);
	}
	EQ(close(listener), 0);
}

TCPS("early.a-direction-ended-right-after-the-connect-gets-its-answer")
{
	need_weft();
	struct server server = {.kind = kind};
	struct name at;
	int over_ddp = 0;

	NEED(pipe(server.tells) == 0);
	pid_t child = start_child(serve, &server);
	NEED(read(server.tells[0], &at, sizeof(at)) == sizeof(at));
	/* What answers for a listener begins beside it. */
	sleep_ms(300);
	for (int n = 0; n < CLIENTS; n++) {
		int client = a_socket(kind);
		char got[6];

		NEED(ask(client, WEFT_DDP_PREFER) == 0 && connect(client, &at.any, at.length) == 0);
		EQ(shutdown(client, SHUT_WR), 0);
		CHECK(recv_all(client, got, 6));
		SAME(got, "answer", 6);
		over_ddp += is_ddp(client);
		EQ(close(client), 0);
	}
	CHECK(child_ended_well(child));
	if (over_ddp == 0)
		SKIP("nobody answers here that this is Weft");
}

TCPS("early.a-refused-connect-is-readable-to-select")
{
	calm();
	need_weft();
	int client = a_socket(kind), keeper;

	while ((keeper = close_and_keep(kind, a_listener(kind, 4))) < 0)
		;
	struct name at = name_of(keeper);
	set_nonblocking(client, true);
	NEED(ask(client, WEFT_DDP_REQUIRE) == 0);
	if (connect(client, &at.any, at.length) != 0)
		EQ(errno, EINPROGRESS);
	CHECK(wait_for(client, POLLIN, patience) & POLLIN);
	EQ(select_one(client, false, patience), 1);
	EQ(get_int(client, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
	EQ(close(client), 0);
	EQ(close(keeper), 0);
}

/* A client whose server, which knows nothing of Weft, has answered with the first octets of a Reply. */
static struct ends half_answered(long kind, size_t octets)
{
	int listener = listener_of(kind, WEFT_DDP_OFF);
	struct name at = name_of(listener);
	struct ends e = {.a = a_socket(kind)};
	uint8_t request[16];

	NEED(ask(e.a, WEFT_DDP_REQUIRE) == 0 && connect(e.a, &at.any, at.length) == 0);
	e.b = accept(listener, NULL, NULL);
	NEED(e.b >= 0 && close(listener) == 0);
	NEED(recv_all(e.b, request, sizeof(request)));
	SAME(request, "MPA ID Req Frame", 16);
	/* Revision 1 and 40 octets of private data, which never come whole. */
	NEED(send_all(e.b, "MPA ID Rep Frame\0\1\0\50nothing", octets));
	wait_for(e.a, POLLIN, QUIET);
	return e;
}

TCPS("early.half-a-reply-is-nothing-to-who-does-not-wait")
{
	calm();
	need_weft();
	struct ends e = half_answered(kind, 5);
	double began = now();
	char octet;

	set_nonblocking(e.a, true);
	FAILS(recv(e.a, &octet, 1, 0), EAGAIN);
	CHECKF(now() - began < 0.5, "it took %g s", now() - began);
	ends_close(e);
}

TCPS("early.half-a-reply-and-the-end-is-a-reset")
{
	calm();
	need_weft();
	struct ends e = half_answered(kind, 5);
	char octet;

	NEED(shutdown(e.b, SHUT_WR) == 0);
	FAILS(recv(e.a, &octet, 1, 0), ECONNRESET);
	ends_close(e);
}

TCPS("early.a-reply-that-does-not-come-whole-is-a-reset")
{
	calm();
	need_weft();
	for (size_t octets = 5; octets < 27; octets += 20) {
		struct ends e = half_answered(kind, octets);
		double began = now();
		char octet;

		FAILS(recv(e.a, &octet, 1, 0), ECONNRESET);
		CHECKF(now() - began < 10, "it took %g s", now() - began);
		ends_close(e);
	}
}

/* How long a plain client waits for the end of a connection that a listener accepts and closes without a word: the
   shortest of a few, as a machine may stand still. */
static double until_the_end(long kind, int mode)
{
	int listener = listener_of(kind, mode);
	struct name at = name_of(listener);
	double least = patience;

	for (int n = 0; n < 4; n++) {
		int client = a_socket(kind);
		char octet;

		NEED(ask(client, WEFT_DDP_OFF) == 0 && connect(client, &at.any, at.length) == 0);
		double began = now();
		EQ(close(accept(listener, NULL, NULL)), 0);
		EQ(recv(client, &octet, 1, 0), 0);
		least = now() - began < least ? now() - began : least;
		EQ(close(client), 0);
	}
	EQ(close(listener), 0);
	return least;
}

TCPS("early.a-plain-client-sees-the-end-soon")
{
	calm();
	need_weft();
	double required = until_the_end(kind, WEFT_DDP_REQUIRE), preferred = until_the_end(kind, WEFT_DDP_PREFER);

	CHECKF(required < 0.5, "it came after %g s where DDP is required", required);
	CHECKF(preferred < 0.5, "it came after %g s where DDP is preferred", preferred);
}

/* Each set is told, whoever looks first. */
TCPS("early.edges-in-two-sets-tell-of-room-when-the-answer-has-come")
{
	need_weft();
	struct early e = full_early(kind, EPOLLOUT | EPOLLET);
	struct epoll_event got = {0};
	int other = a_poll();

	watch(other, e.client, EPOLLOUT | EPOLLET);
	events_of(e.set, &got, QUIET);
	events_of(other, &got, QUIET);
	int fd = accepted_early(&e);
	EQ(events_of(e.set, &got, patience), 1);
	EQ(events_of(other, &got, patience), 1);
	CHECK(got.events & EPOLLOUT);
	EQ(send(e.client, "x", 1, MSG_DONTWAIT), 1);
	EQ(close(other), 0);
	end_early(&e, fd);
}

/* A word is the program's: two descriptors may have the same, and what comes once is told of the one that has it. */
static void another_has_the_word(long kind, uint32_t how)
{
	struct early e = full_early(kind, EPOLLIN | EPOLLET);
	int bell = eventfd(0, EFD_NONBLOCK);
	struct epoll_event both = {.events = EPOLLIN | how, .data.u64 = 7}, got = {0};

	NEED(bell >= 0);
	EQ(epoll_ctl(e.set, EPOLL_CTL_MOD, e.client, &both), 0);
	EQ(epoll_ctl(e.set, EPOLL_CTL_ADD, bell, &both), 0);
	for (int i = 0; i < 5; i++) {
		EQ(events_of(e.set, NULL, 0), 0);
		NEED(write(bell, &(uint64_t){1}, 8) == 8);
		EQ(events_of(e.set, &got, patience), 1);
		EQ(got.data.u64, 7);
		NEED(read(bell, &(uint64_t){0}, 8) == 8);
		if (how & EPOLLONESHOT)
			EQ(epoll_ctl(e.set, EPOLL_CTL_MOD, bell, &both), 0);
	}
	/* With a word of its own it is told of no more than it was. */
	both.data.u64 = 8;
	EQ(epoll_ctl(e.set, EPOLL_CTL_MOD, bell, &both), 0);
	NEED(write(bell, &(uint64_t){1}, 8) == 8);
	EQ(events_of(e.set, &got, patience), 1);
	EQ(got.data.u64, 8);
	EQ(close(bell), 0);
	int fd = accepted_early(&e);
	end_early(&e, fd);
}

TCPS("early.another-with-the-same-word-is-told-of-by-edge")
{
	need_weft();
	another_has_the_word(kind, EPOLLET);
}

TCPS("early.another-with-the-same-word-is-told-of-once")
{
	need_weft();
	another_has_the_word(kind, EPOLLONESHOT);
}
