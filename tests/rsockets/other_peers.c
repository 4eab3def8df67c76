/* Peers that are not Weft: they give windows and credit, and end by words. */
#include "foreign.h"

#include <sys/epoll.h>

/* Gives credit for sixteen messages, every eight that come. */
static void *gives_credit(void *of)
{
	struct peer *p = of;
	uint32_t heard = 0;

	for (int kind; (kind = peer_hears(p)) >= 0;) {
		if (kind != WORD_DATA && kind != WORD_MAP)
			continue;
		if (++heard % 8 == 0 && !peer_says(p, WORD_CREDIT, (heard + 16) & 0xffff))
			break;
	}
	return NULL;
}

static const struct said LITTLE_CREDIT = {.credits = 16, .window = 65536, .ranges = 1};
static const struct said MUCH_CREDIT = {.credits = 384, .window = 65536, .ranges = 1};

static void sends_often(int fd)
{
	enum { OFTEN = 1000 };

	for (int i = 0; i < OFTEN; i++)
		if (!EQ(rsend(fd, "z", 1, 0), 1))
			break;
}

static void *receives_one(void *of)
{
	char octet;

	return (void *)rrecv(*(int *)of, &octet, 1, 0);
}

/* A thread that waits to receive takes the word of credit, and the sender goes on. */
CASE("other-peers.credit-that-a-reader-has-taken-reaches-the-sender")
{
	struct peer p;
	int fd = connected_to(&p, LITTLE_CREDIT);
	pthread_t peer, reader;

	NEED(pthread_create(&peer, NULL, gives_credit, &p) == 0);
	NEED(pthread_create(&reader, NULL, receives_one, &fd) == 0);
	sends_often(fd);
	EQ(rshutdown(fd, SHUT_RDWR), 0);
	EQ(shutdown(p.fd, SHUT_RDWR), 0);
	NEED(pthread_join(reader, NULL) == 0 && pthread_join(peer, NULL) == 0);
}

CASE("other-peers.credit-that-the-thread-of-mapped-memory-has-taken-reaches-the-sender")
{
	struct peer p;
	int fd = connected_to(&p, LITTLE_CREDIT);
	unsigned char memory[64];
	pthread_t peer;

	NEED(pthread_create(&peer, NULL, gives_credit, &p) == 0);
	EQ(riomap(fd, memory, sizeof(memory), PROT_WRITE, 0, 0), 0);
	sends_often(fd);
	EQ(shutdown(p.fd, SHUT_RDWR), 0);
	NEED(pthread_join(peer, NULL) == 0);
}

/* The end is a word, which a receive takes with the octets before it. Whoever asks then is told, however often. */
static int ended(struct peer *p)
{
	int fd = connected_to(p, MUCH_CREDIT);
	char octets[64];

	peer_sends(p, "hello", 5);
	NEED(peer_says(p, WORD_CONTROL, SHUTDOWN));
	CHECK(wait_for(fd, POLLIN, patience) & POLLIN);
	/* Both are there, so that one call takes both. */
	sleep_ms(QUIET);
	EQ(rrecv(fd, octets, sizeof(octets), 0), 5);
	return fd;
}

CASE("other-peers.the-end-is-told-by-rpoll-and-rselect-again-and-again")
{
	struct peer p;
	int fd = ended(&p);
	char octet;

	for (int round = 0; round < 3; round++) {
		struct timeval time = {patience / 1000 + 1, 0};
		fd_set in;

		CHECK(wait_for(fd, POLLIN, patience) & POLLIN);
		FD_ZERO(&in);
		FD_SET(fd, &in);
		EQ(rselect(fd + 1, &in, NULL, NULL, &time), 1);
		EQ(rrecv(fd, &octet, 1, 0), 0);
	}
	/* The other direction goes on, and its credit comes. */
	EQ(rsend(fd, "answer", 6, 0), 6);
	EQ(peer_hears(&p), WORD_DATA);
	EQ(rclose(fd), 0);
}

CASE("other-peers.the-end-is-told-by-an-epoll-again-and-again")
{
	struct peer p;
	int fd = ended(&p), epoll = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN};

	need_ordinary_calls();
	EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
	for (int round = 0; round < 3; round++) {
		EQ(epoll_wait(epoll, &event, 1, patience), 1);
		CHECK(event.events & EPOLLIN);
	}
	EQ(rclose(fd), 0);
}

/* Credit comes behind the end as well: what it is for leaves. */
CASE("other-peers.a-sender-goes-on-behind-the-peers-end")
{
	struct peer p;
	int fd = connected_to(&p, LITTLE_CREDIT);
	pthread_t peer;

	NEED(peer_says(&p, WORD_CONTROL, SHUTDOWN));
	CHECK(wait_for(fd, POLLIN, patience) & POLLIN);
	NEED(pthread_create(&peer, NULL, gives_credit, &p) == 0);
	sends_often(fd);
	EQ(shutdown(p.fd, SHUT_RDWR), 0);
	NEED(pthread_join(peer, NULL) == 0);
}

/* The thread of mapped memory takes the word, and the reader that waits is told. */
CASE("other-peers.a-reader-that-waits-is-told-of-the-end-with-mapped-memory")
{
	struct peer p;
	int fd = connected_to(&p, MUCH_CREDIT);
	unsigned char memory[64];
	pthread_t reader;
	void *got;

	EQ(riomap(fd, memory, sizeof(memory), PROT_WRITE, 0, 0), 0);
	NEED(pthread_create(&reader, NULL, receives_one, &fd) == 0);
	sleep_ms(QUIET);
	NEED(peer_says(&p, WORD_CONTROL, SHUTDOWN));
	NEED(pthread_join(reader, &got) == 0);
	EQ((long)got, 0);
	CHECK(wait_for(fd, POLLIN, patience) & POLLIN);
	EQ(rclose(fd), 0);
}

/* A client that connects and says nothing is no peer that memory could be mapped for, and holds nobody up. */
CASE("other-peers.a-client-that-says-nothing-holds-no-map-up")
{
	int listener = a_listener(AF_INET), plain = socket(AF_INET, SOCK_STREAM, 0);
	struct name n = name_of(listener);
	unsigned char memory[64];

	NEED(connect(plain, &n.any, n.length) == 0);
	int accepted = raccept(listener, NULL, NULL);
	NEED(accepted >= 0);
	FAILS(riomap(accepted, memory, sizeof(memory), PROT_WRITE, 0, 0), EOPNOTSUPP);
	accepted = -1;
	NEED(connect(plain = socket(AF_INET, SOCK_STREAM, 0), &n.any, n.length) == 0);
	accepted = raccept(listener, NULL, NULL);
	NEED(accepted >= 0);
	set_nonblocking(accepted, true);
	FAILS(riowrite(accepted, memory, 1, 0, 0), EAGAIN);
	set_nonblocking(accepted, false);
	FAILS(riowrite(accepted, memory, 1, 0, 0), EOPNOTSUPP);
}

static void *closes_later(void *of)
{
	sleep_ms(QUIET);
	EQ(close(*(int *)of), 0);
	return NULL;
}

/* A listener whose queue is full leaves who connects waiting, and refuses it when it closes. */
CASE("other-peers.a-map-ends-with-the-attempt-to-connect")
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = an_rsocket(AF_INET);
	struct name n = loopback(AF_INET);
	unsigned char memory[64];
	pthread_t closer;

	NEED(bind(listener, &n.any, n.length) == 0 && listen(listener, 0) == 0);
	NEED(getsockname(listener, &n.any, &n.length) == 0);
	for (int i = 0; i < 4; i++) {
		int other = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		CHECK(connect(other, &n.any, n.length) == 0 || errno == EINPROGRESS);
	}
	set_nonblocking(fd, true);
	FAILS(rconnect(fd, &n.any, n.length), EINPROGRESS);
	NEED(pthread_create(&closer, NULL, closes_later, &listener) == 0);
	FAILS(riomap(fd, memory, sizeof(memory), PROT_WRITE, 0, 0), ECONNREFUSED);
	FAILS(riomap(fd, memory, sizeof(memory), PROT_WRITE, 0, 0), EINVAL);
	FAILS(riowrite(fd, memory, 1, 0, 0), ENOTCONN);
	NEED(pthread_join(closer, NULL) == 0);
}
