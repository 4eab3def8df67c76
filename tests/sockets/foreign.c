/* Peers that are not Weft: what they say, leave out or say late makes no call wait that does not, and burns no time. */
#include "asked.h"
#include "framed.h"
#include "ready.h"

static const struct says everything = {.credits = 100, .window = 1 << 20};

/* Seconds of a processor that this thread has used. */
static double used(void)
{
	struct timespec at;

	NEED(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at) == 0);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void set_timeout(int fd, int option, int ms)
{
	struct timeval time = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	NEED(setsockopt(fd, SOL_SOCKET, option, &time, sizeof(time)) == 0);
}

/* What the peer does in a thread of its own, a while later. */
struct later {
	struct framed_ends *ends;
	void (*act)(struct framed_ends *ends);
	pthread_t thread;
};

static void *act(void *of)
{
	struct later *later = of;

	sleep_ms(QUIET);
	later->act(later->ends);
	return NULL;
}

static struct later *soon(struct framed_ends *ends, void (*what)(struct framed_ends *))
{
	struct later *later = calloc(1, sizeof(*later));

	NEED(later);
	*later = (struct later){ends, what};
	NEED(pthread_create(&later->thread, NULL, act, later) == 0);
	return later;
}

static void did(struct later *later)
{
	join_soon(later->thread, NULL);
	free(later);
}

/* Ends of which the peer has said that it is ready, and a greeting was received. */
static struct framed_ends greeted(long kind, struct says says)
{
	struct framed_ends e = framed_ends(kind, says);
	char got[5];

	framed_is_ready(&e.peer);
	framed_writes(&e.peer, "hello", 5);
	EQ(recv(e.fd, got, 5, 0), 5);
	SAME(got, "hello", 5);
	return e;
}

TCPS("foreign.a-send-without-credit-does-not-wait")
{
	need_weft();
	struct framed_ends e = greeted(kind, (struct says){.credits = 0, .window = 1 << 20});

	FAILS(send(e.fd, "x", 1, MSG_DONTWAIT), EAGAIN);
	set_nonblocking(e.fd, true);
	FAILS(send(e.fd, "x", 1, 0), EAGAIN);
	framed_ends_close(&e);
}

TCPS("foreign.a-send-without-a-window-does-not-wait")
{
	need_weft();
	struct framed_ends e = greeted(kind, (struct says){.credits = 100, .window = 0});

	FAILS(send(e.fd, "x", 1, MSG_DONTWAIT), EAGAIN);
	framed_ends_close(&e);
}

static void credit(struct framed_ends *e)
{
	framed_gives_credit(&e->peer, 100);
}

TCPS("foreign.a-sender-is-told-of-credit-though-nobody-receives")
{
	need_weft();
	struct framed_ends e = greeted(kind, (struct says){.credits = 0, .window = 1 << 20});

	FAILS(send(e.fd, "x", 1, MSG_DONTWAIT), EAGAIN);
	credit(&e);
	NEED(wait_for(e.fd, POLLOUT, patience) == POLLOUT);
	EQ(send(e.fd, "x", 1, MSG_DONTWAIT), 1);
	CHECK(wait_for(e.peer.fd, POLLIN, patience));
	framed_ends_close(&e);
}

/* A signal, whenever it comes, ends the wait of a sender beside octets that nobody receives. */
TCPS("foreign.a-sender-without-credit-is-interrupted")
{
	calm();
	need_weft();
	struct framed_ends e = greeted(kind, (struct says){.credits = 0, .window = 1 << 20});
	struct itimerval at = {0};

	catch_signal(SIGALRM, 0);
	framed_writes(&e.peer, "nobody", 6);
	for (int i = 0; i < 40; i++) {
		at.it_value.tv_usec = 3000 + 250 * i;
		NEED(setitimer(ITIMER_REAL, &at, NULL) == 0);
		FAILS(send(e.fd, "x", 1, 0), EINTR);
	}
	EQ(caught, 40);
	framed_ends_close(&e);
}

TCPS("foreign.a-sender-waits-for-credit")
{
	calm();
	need_weft();
	struct framed_ends e = greeted(kind, (struct says){.credits = 0, .window = 1 << 20});
	struct later *later = soon(&e, credit);

	EQ(send(e.fd, "x", 1, 0), 1);
	did(later);
	framed_ends_close(&e);
}

TCPS("foreign.a-sender-waits-for-credit-beside-octets-that-nobody-receives")
{
	calm();
	need_weft();
	struct framed_ends e = greeted(kind, (struct says){.credits = 0, .window = 1 << 20});
	double before = used(), began = now();

	framed_writes(&e.peer, "unread", 6);
	set_timeout(e.fd, SO_SNDTIMEO, 300);
	FAILS(send(e.fd, "x", 1, 0), EAGAIN);
	CHECKF(now() - began >= 0.25, "it waited for %g s", now() - began);
	CHECKF(used() - before < 0.1, "it used %g s of a processor", used() - before);
	framed_ends_close(&e);
}

static void unread_and_credit(struct framed_ends *e)
{
	framed_writes(&e->peer, "unread", 6);
	framed_gives_credit(&e->peer, 100);
}

TCPS("foreign.a-sender-hears-of-credit-behind-octets-that-nobody-receives")
{
	calm();
	need_weft();
	struct framed_ends e = greeted(kind, (struct says){.credits = 0, .window = 1 << 20});
	struct later *later = soon(&e, unread_and_credit);
	char got[6];

	EQ(send(e.fd, "x", 1, 0), 1);
	did(later);
	EQ(recv(e.fd, got, 6, MSG_WAITALL), 6);
	SAME(got, "unread", 6);
	framed_ends_close(&e);
}

TCPS("foreign.the-end-without-credit-ends-a-send")
{
	calm();
	need_weft();
	struct framed_ends e = greeted(kind, (struct says){.credits = 0, .window = 1 << 20});
	double began = now();

	set_timeout(e.fd, SO_SNDTIMEO, 300);
	NEED(shutdown(e.peer.fd, SHUT_WR) == 0);
	FAILS(send(e.fd, "x", 1, 0), EAGAIN);
	CHECKF(now() - began >= 0.25, "it waited for %g s", now() - began);
	framed_ends_close(&e);
}

static void is_ready(struct framed_ends *e)
{
	framed_is_ready(&e->peer);
}

TCPS("foreign.who-speaks-first-waits-until-the-peer-is-ready")
{
	calm();
	need_weft();
	struct framed_ends e = framed_ends(kind, everything);

	FAILS(send(e.fd, "220 banner", 10, MSG_DONTWAIT), EAGAIN);
	struct later *later = soon(&e, is_ready);
	EQ(send(e.fd, "220 banner", 10, 0), 10);
	did(later);
	framed_ends_close(&e);
}

TCPS("foreign.who-speaks-first-takes-what-says-that-the-peer-is-ready")
{
	need_weft();
	struct framed_ends e = framed_ends(kind, everything);

	framed_is_ready(&e.peer);
	NEED(wait_for(e.fd, POLLOUT, patience) == POLLOUT);
	EQ(send(e.fd, "220 banner", 10, 0), 10);
	framed_ends_close(&e);
}

TCPS("foreign.an-edge-tells-of-credit")
{
	need_weft();
	struct framed_ends e = greeted(kind, (struct says){.credits = 0, .window = 1 << 20});
	struct epoll_event got = {0};
	int set = a_poll();

	watch(set, e.fd, EPOLLIN | EPOLLOUT | EPOLLET);
	FAILS(send(e.fd, "x", 1, MSG_DONTWAIT), EAGAIN);
	events_of(set, &got, 0);
	credit(&e);
	EQ(events_of(set, &got, patience), 1);
	CHECK(got.events & EPOLLOUT);
	EQ(send(e.fd, "x", 1, MSG_DONTWAIT), 1);
	EQ(close(set), 0);
	framed_ends_close(&e);
}

/* What gives room is nothing that such a watch is told of: somebody has to look. */
TCPS("foreign.an-edge-for-room-alone-tells-of-credit")
{
	need_weft();
	for (int tries = 0; tries < 2; tries++) {
		struct framed_ends e = greeted(kind, (struct says){.credits = 0, .window = 1 << 20});
		struct epoll_event got = {0};
		int set = a_poll();

		watch(set, e.fd, EPOLLOUT | EPOLLET);
		/* Once by a send that is refused, once by a wait that finds no room. */
		if (tries == 0)
			FAILS(send(e.fd, "x", 1, MSG_DONTWAIT), EAGAIN);
		EQ(events_of(set, &got, QUIET), 0);
		credit(&e);
		EQ(events_of(set, &got, patience), 1);
		CHECK(got.events & EPOLLOUT);
		EQ(send(e.fd, "x", 1, MSG_DONTWAIT), 1);
		EQ(close(set), 0);
		framed_ends_close(&e);
	}
}

/* It is watched by one number and used by another. */
TCPS("foreign.an-edge-tells-of-credit-to-a-copy")
{
	need_weft();
	struct framed_ends e = greeted(kind, (struct says){.credits = 0, .window = 1 << 20});
	struct epoll_event got = {0};
	int set = a_poll(), copy = dup(e.fd);

	NEED(copy >= 0);
	watch(set, e.fd, EPOLLOUT | EPOLLET);
	FAILS(send(copy, "x", 1, MSG_DONTWAIT), EAGAIN);
	events_of(set, &got, 0);
	FAILS(send(copy, "x", 1, MSG_DONTWAIT), EAGAIN);
	credit(&e);
	EQ(events_of(set, &got, patience), 1);
	CHECK(got.events & EPOLLOUT);
	EQ(send(copy, "x", 1, MSG_DONTWAIT), 1);
	EQ(close(copy), 0);
	EQ(close(set), 0);
	framed_ends_close(&e);
}

TCPS("foreign.a-socket-without-credit-is-not-writable")
{
	need_weft();
	struct framed_ends e = greeted(kind, (struct says){.credits = 0, .window = 1 << 20});
	struct epoll_event got = {0};
	int set = a_poll();

	watch(set, e.fd, EPOLLOUT);
	/* Nobody has tried to send. */
	EQ(wait_for(e.fd, POLLOUT, QUIET), 0);
	EQ(events_of(set, &got, QUIET), 0);
	credit(&e);
	EQ(wait_for(e.fd, POLLOUT, patience), POLLOUT);
	EQ(events_of(set, &got, patience), 1);
	EQ(send(e.fd, "x", 1, MSG_DONTWAIT), 1);
	EQ(close(set), 0);
	framed_ends_close(&e);
}

TCPS("foreign.credit-is-nothing-to-be-read")
{
	need_weft();
	struct framed_ends e = greeted(kind, everything);
	struct epoll_event got = {0};
	int set = a_poll();
	char octet;

	watch(set, e.fd, EPOLLIN);
	credit(&e);
	EQ(events_of(set, &got, QUIET), 0);
	framed_says(&e.peer, WORD_KEEPALIVE);
	EQ(wait_for(e.fd, POLLIN, QUIET), 0);
	FAILS(recv(e.fd, &octet, 1, MSG_DONTWAIT), EAGAIN);
	framed_writes(&e.peer, "x", 1);
	EQ(events_of(set, &got, patience), 1);
	EQ(recv(e.fd, &octet, 1, 0), 1);
	EQ(close(set), 0);
	framed_ends_close(&e);
}

/* The one end of a connection whose other end has sent a part of a Request. */
static struct framed_ends half_asked(long kind, size_t octets)
{
	struct framed_ends e = {.listener = listener_of(kind, WEFT_DDP_REQUIRE)};

	e.peer = framed_to(kind, e.listener);
	e.fd = accept(e.listener, NULL, NULL);
	NEED(e.fd >= 0);
	framed_asks(&e.peer, everything, octets);
	return e;
}

static void ends_soon_and_burns_nothing(double began, double before)
{
	CHECKF(now() - began < 10, "it took %g s", now() - began);
	CHECKF(used() - before < 0.3, "it used %g s of a processor", used() - before);
}

TCPS("foreign.a-receiver-does-not-wait-for-the-rest-of-a-request-without-end")
{
	calm();
	need_weft();
	for (size_t octets = 16; octets < REQUEST_OCTETS; octets += 21) {
		struct framed_ends e = half_asked(kind, octets);
		double began = now(), before = used();
		char octet;

		FAILS(recv(e.fd, &octet, 1, 0), ECONNRESET);
		ends_soon_and_burns_nothing(began, before);
		framed_ends_close(&e);
	}
}

TCPS("foreign.a-poll-does-not-wait-for-the-rest-of-a-request-without-end")
{
	calm();
	need_weft();
	struct framed_ends e = half_asked(kind, 30);
	double began = now(), before = used();
	char octet;

	CHECK(wait_for(e.fd, POLLIN, patience));
	FAILS(recv(e.fd, &octet, 1, MSG_DONTWAIT), ECONNRESET);
	ends_soon_and_burns_nothing(began, before);
	framed_ends_close(&e);
}

TCPS("foreign.an-epoll-does-not-wait-for-the-rest-of-a-request-without-end")
{
	calm();
	need_weft();
	struct framed_ends e = half_asked(kind, 30);
	double began = now(), before = used();
	struct epoll_event got;
	int set = a_poll();

	watch(set, e.fd, EPOLLIN);
	EQ(events_of(set, &got, patience), 1);
	ends_soon_and_burns_nothing(began, before);
	EQ(close(set), 0);
	framed_ends_close(&e);
}

TCPS("foreign.a-request-that-ends-in-the-middle-is-a-reset")
{
	need_weft();
	struct framed_ends e = half_asked(kind, 30);
	char octet;

	NEED(shutdown(e.peer.fd, SHUT_WR) == 0);
	CHECK(wait_for(e.fd, POLLRDHUP, patience));
	FAILS(recv(e.fd, &octet, 1, MSG_DONTWAIT), ECONNRESET);
	framed_ends_close(&e);
}

TCPS("foreign.a-request-may-come-in-parts")
{
	calm();
	need_weft();
	struct framed_ends e = half_asked(kind, 0);
	struct framed whole = {.fd = -1};
	uint8_t request[REQUEST_OCTETS];
	int pair[2];
	char octet;

	/* The octets of a Request, to be sent piece by piece. */
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	whole.fd = pair[0];
	framed_asks(&whole, everything, REQUEST_OCTETS);
	NEED(recv_all(pair[1], request, sizeof(request)));
	for (size_t at = 0; at < sizeof(request); at += 20) {
		NEED(send_all(e.peer.fd, request + at, 20));
		wait_for(e.fd, POLLIN, QUIET);
		FAILS(recv(e.fd, &octet, 1, MSG_DONTWAIT), EAGAIN);
	}
	framed_takes_reply(&e.peer);
	framed_is_ready(&e.peer);
	framed_writes(&e.peer, "x", 1);
	EQ(recv(e.fd, &octet, 1, 0), 1);
	EQ(close(pair[0]), 0);
	EQ(close(pair[1]), 0);
	framed_ends_close(&e);
}

/* The first octet of an FPDU of several is told of with the last, whose CRC covers them all. */
TCPS("foreign.half-an-fpdu-is-nothing-to-who-does-not-wait")
{
	calm();
	need_weft();
	struct framed_ends e = greeted(kind, (struct says){.credits = 100, .window = 1 << 20, .crc = true});
	char data[100] = {0}, octet;
	double began = now(), before = used();

	framed_writes_in_part(&e.peer, data, sizeof(data), 60);
	wait_for(e.fd, POLLIN, QUIET);
	set_nonblocking(e.fd, true);
	FAILS(recv(e.fd, &octet, 1, 0), EAGAIN);
	FAILS(recv(e.fd, &octet, 1, MSG_WAITALL), EAGAIN);
	FAILS(recv(e.fd, &octet, 1, MSG_PEEK | MSG_WAITALL), EAGAIN);
	ends_soon_and_burns_nothing(began, before);
	framed_ends_close(&e);
}

TCPS("foreign.half-a-request-is-nothing-to-who-does-not-wait")
{
	calm();
	need_weft();
	struct framed_ends e = half_asked(kind, 40);
	double before = used();
	char octet;

	set_nonblocking(e.fd, true);
	FAILS(recv(e.fd, &octet, 1, 0), EAGAIN);
	CHECKF(used() - before < 0.1, "it used %g s of a processor", used() - before);
	framed_ends_close(&e);
}

/* As many Writes of nothing as a peer can send while it is listened to, and no end of them in sight. */
static void *sends_nothing_much(void *of)
{
	static uint8_t block[64 << 10];
	struct framed *peer = of;
	size_t one = framed_nothing(peer, block, sizeof(block)), whole = sizeof(block) / one * one;

	for (size_t at = one; at < whole; at += one)
		memcpy(block + at, block, one);
	for (int n = 0; n < 1024; n++) {
		for (size_t at = 0; at < whole;) {
			ssize_t now = send(peer->fd, block + at, whole - at, MSG_NOSIGNAL);
			if (now < 0)
				return NULL;
			at += (size_t)now;
		}
	}
	return NULL;
}

TCPS("foreign.framing-without-end-is-a-reset")
{
	calm();
	need_weft();
	struct framed_ends e = greeted(kind, everything);
	double began = now();
	pthread_t thread;
	char octet;

	NEED(pthread_create(&thread, NULL, sends_nothing_much, &e.peer) == 0);
	ssize_t got;
	do
		got = recv(e.fd, &octet, 1, MSG_DONTWAIT);
	while (got < 0 && errno == EAGAIN && now() - began < 10);
	EQ(got, -1);
	EQ(errno, ECONNRESET);
	shutdown(e.peer.fd, SHUT_RDWR);
	join_soon(thread, NULL);
	framed_ends_close(&e);
}

/* Signs of life, of a peer that sends nothing else. */
static void lives(struct framed_ends *e)
{
	for (int n = 0; n < 30; n++) {
		framed_says(&e->peer, WORD_KEEPALIVE);
		sleep_ms(50);
	}
}

static void times_out_once(long kind, int flags, size_t wanted)
{
	struct framed_ends e = greeted(kind, everything);
	struct later *later = soon(&e, lives);
	char got[8];

	set_timeout(e.fd, SO_RCVTIMEO, 300);
	if (wanted > 1)
		framed_writes(&e.peer, "x", 1);
	double began = now();
	if (wanted > 1)
		EQ(recv(e.fd, got, wanted, flags), 1);
	else
		FAILS(recv(e.fd, got, wanted, flags), EAGAIN);
	double took = now() - began;
	CHECKF(took >= 0.25 && took < 1.2, "it waited for %g s", took);
	did(later);
	framed_ends_close(&e);
}

TCPS("foreign.signs-of-life-do-not-begin-a-timeout-anew")
{
	calm();
	need_weft();
	times_out_once(kind, 0, 1);
}

TCPS("foreign.signs-of-life-do-not-begin-a-timeout-for-all-anew")
{
	calm();
	need_weft();
	times_out_once(kind, MSG_WAITALL, 2);
}

TCPS("foreign.a-poll-with-a-low-water-mark-sleeps-through-small-messages")
{
	calm();
	need_weft();
	struct framed_ends e =
		framed_ends(kind, (struct says){.credits = 100, .window = 1 << 20, .weft = true});
	char message[64] = {0}, octet;

	framed_is_ready(&e.peer);
	framed_writes(&e.peer, "!", 1);
	EQ(recv(e.fd, &octet, 1, 0), 1);
	set_int(e.fd, SOL_SOCKET, SO_RCVLOWAT, 1000);
	for (int n = 0; n < 15; n++)
		framed_writes(&e.peer, message, sizeof(message));
	double before = used();
	EQ(wait_for(e.fd, POLLIN, 1000), 0);
	CHECKF(used() - before < 0.2, "it used %g s of a processor", used() - before);
	framed_writes(&e.peer, message, sizeof(message));
	CHECK(wait_for(e.fd, POLLIN, patience) & POLLIN);
	framed_ends_close(&e);
}
