/* What a program that prefers DDP does before it is known whether the other end is Weft: nobody answers, or late. */
#include "asked.h"
#include "flow.h"
#include "ready.h"

#include <netinet/in.h>

/* docs/discovery.md */
enum { DISCOVERY_PORT = 22342, YES_OCTETS = 24, KIND_AT = 5, KIND_YES = 2 };

/* A server's listener, and the discovery port of its address. */
struct scene {
	int udp, listener;
};

/* Of several cases at a time each would answer the others' questions. Until the process ends. */
static void alone(void)
{
	static int held = -1;
	struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "\0weft-tests-asking"};
	double end = deadline();

	if (held >= 0)
		return;
	NEED((held = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) >= 0);
	while (bind(held, (struct sockaddr *)&at, sizeof(at)) < 0) {
		NEED(errno == EADDRINUSE && now() < end);
		sleep_ms(2);
	}
}

static struct scene begin(long kind, int mode)
{
	alone();
	struct scene s = {.udp = socket(kind_family((enum kind)kind), SOCK_DGRAM, 0)};
	struct name at = loopback(kind);
	struct timeval soon = {.tv_sec = 10};

	NEED(s.udp >= 0);
	set_int(s.udp, SOL_SOCKET, SO_REUSEPORT, 1);
	NEED(setsockopt(s.udp, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) == 0);
	at.in.sin_port = htons(DISCOVERY_PORT);
	if (bind(s.udp, &at.any, at.length) < 0)
		SKIP("the discovery port is somebody else's");
	s.listener = a_bound(kind);
	/* The kernel knows no such option. */
	ask(s.listener, mode);
	NEED(listen(s.listener, 8) == 0);
	return s;
}

/* Connects without waiting; the connection stands. */
static int connects(long kind, struct scene s)
{
	struct name to = name_of(s.listener);
	int fd = a_socket(kind);

	ask(fd, WEFT_DDP_PREFER);
	set_nonblocking(fd, true);
	if (connect(fd, &to.any, to.length) < 0) {
		EQ(errno, EINPROGRESS);
		NEED(wait_for(fd, POLLOUT, patience));
	}
	return fd;
}

static int accepted(struct scene s)
{
	int fd = accept(s.listener, NULL, NULL);

	NEED(fd >= 0);
	return fd;
}

static void ends(struct scene s, int client, int server)
{
	EQ(close(client), 0);
	EQ(close(server), 0);
	EQ(close(s.listener), 0);
	EQ(close(s.udp), 0);
}

/* Says yes to one question, later than the program's first calls. */
static void *says_yes_late(void *of)
{
	struct scene *s = of;
	struct sockaddr_storage from;
	socklen_t length = sizeof(from);
	unsigned char octets[600];
	ssize_t got = recvfrom(s->udp, octets, sizeof(octets), 0, (struct sockaddr *)&from, &length);

	if (got < YES_OCTETS)
		return NULL;
	octets[KIND_AT] = KIND_YES;
	sleep_ms(2);
	sendto(s->udp, octets, YES_OCTETS, 0, (struct sockaddr *)&from, length);
	return NULL;
}

TCPS("asking.no-call-waits-that-need-not")
{
	calm();
	double quickest = 10;

	/* Each server is a new one: what was learnt is remembered. One try that stood still for nothing is enough. */
	for (int i = 0; i < 20; i++) {
		struct scene s = begin(kind, WEFT_DDP_OFF);
		char octets[8];
		double begun = now();
		int client = connects(kind, s);
		FAILS(recv(client, octets, sizeof(octets), 0), EAGAIN);
		EQ(send(client, "hello", 5, 0), 5);
		EQ(wait_for(client, POLLIN, 0), 0);
		EQ(wait_for(client, POLLOUT, 0), POLLOUT);
		double took = now() - begun;
		if (took < quickest)
			quickest = took;
		int server = accepted(s);
		NEED(recv_all(server, octets, 5));
		EQ(memcmp(octets, "hello", 5), 0);
		ends(s, client, server);
	}
	if (quickest > 0.003)
		CHECKF(false, "%.1f ms", quickest * 1e3);
}

/* Fills the connection, the first time before it is known what the other end is, and goes on when there is room. */
static void fills(long kind, uint32_t events)
{
	struct scene s = begin(kind, WEFT_DDP_OFF);
	struct flow out = {21, 0}, in = out;
	int client = connects(kind, s), server = accepted(s), set = a_poll();
	static char octets[4096];

	set_int(client, SOL_SOCKET, SO_SNDBUF, 20000);
	watch(set, client, events);
	for (int i = 0; i < 8; i++) {
		for (;;) {
			struct flow next = out;
			flow_next(&next, octets, sizeof(octets));
			ssize_t sent = send(client, octets, sizeof(octets), 0);
			if (sent < 0)
				break;
			out.at += (uint64_t)sent;
		}
		EQ(errno, EAGAIN);
		/* Of the connect itself, or as the answer came just now: it goes on. */
		if (events_of(set, NULL, 0)) {
			i--;
			continue;
		}
		NEED(out.at > in.at && flow_recv(&in, server, out.at - in.at));
		EQ(events_of(set, NULL, patience), 1);
	}
	EQ(close(set), 0);
	EQ(shutdown(client, SHUT_WR), 0);
	CHECK(flow_recv_to_the_end(&in, server));
	EQ(in.at, out.at);
	ends(s, client, server);
}

TCPS("asking.room-is-told-of-by-level")
{
	fills(kind, EPOLLOUT);
}

TCPS("asking.room-is-told-of-by-edge")
{
	fills(kind, EPOLLOUT | EPOLLET);
}

/* A server that speaks first; the client looks before it may know, and is told again. */
static void greeted(long kind, uint32_t events)
{
	struct scene s = begin(kind, WEFT_DDP_OFF);
	int client = connects(kind, s), set = a_poll(), server = accepted(s);
	char octets[16];
	ssize_t got;

	watch(set, client, events);
	NEED(send_all(server, "220 ready", 9));
	/* The octets are there, and perhaps not to be had. */
	got = recv(client, octets, sizeof(octets), 0);
	if (got < 0) {
		EQ(errno, EAGAIN);
		EQ(events_of(set, NULL, patience), 1);
		got = recv(client, octets, sizeof(octets), 0);
	}
	EQ(got, 9);
	EQ(memcmp(octets, "220 ready", 9), 0);
	EQ(close(set), 0);
	ends(s, client, server);
}

TCPS("asking.a-greeting-is-told-of-by-level")
{
	greeted(kind, EPOLLIN);
}

TCPS("asking.a-greeting-is-told-of-by-edge")
{
	greeted(kind, EPOLLIN | EPOLLET);
}

TCPS("asking.readable-means-octets")
{
	for (int i = 0; i < 4; i++) {
		struct scene s = begin(kind, WEFT_DDP_OFF);
		int client = connects(kind, s), server = accepted(s);
		char octets[16];

		NEED(send_all(server, "220 ready", 9));
		if (i % 2)
			EQ(select_one(client, false, patience), 1);
		else
			EQ(wait_for(client, POLLIN, patience), POLLIN);
		EQ(recv(client, octets, sizeof(octets), 0), 9);
		ends(s, client, server);
	}
}

/* A whole conversation whose first half is over before the answer comes. */
static void says_all_at_once(long kind, int mode, bool closes)
{
	struct scene s = begin(kind, mode);
	pthread_t thread;
	char octets[8];

	if (mode != WEFT_DDP_OFF)
		NEED(pthread_create(&thread, NULL, says_yes_late, &s) == 0);
	int client = connects(kind, s);
	EQ(send(client, "hel", 3, 0), 3);
	EQ(send(client, "lo", 2, 0), 2);
	if (closes) {
		EQ(close(client), 0);
	} else {
		EQ(shutdown(client, SHUT_WR), 0);
		FAILS(send(client, "x", 1, MSG_NOSIGNAL), EPIPE);
	}
	int server = accepted(s);
	NEED(recv_all(server, octets, 5));
	EQ(memcmp(octets, "hello", 5), 0);
	EQ(recv(server, octets, sizeof(octets), 0), 0);
	if (!closes) {
		NEED(send_all(server, "bye", 3));
		NEED(octets_come(client, 3));
		EQ(recv(client, octets, sizeof(octets), 0), 3);
		EQ(close(client), 0);
	}
	EQ(close(server), 0);
	/* Nobody may have asked. */
	if (mode != WEFT_DDP_OFF) {
		struct name own = name_of(s.udp);
		NEED(sendto(s.udp, "over", 4, 0, &own.any, own.length) == 4);
		NEED(join_soon(thread, NULL));
	}
	EQ(close(s.listener), 0);
	EQ(close(s.udp), 0);
}

TCPS("asking.what-was-said-arrives-where-nobody-answers")
{
	for (int i = 0; i < 4; i++)
		says_all_at_once(kind, WEFT_DDP_OFF, false);
}

TCPS("asking.what-was-said-arrives-after-a-late-yes")
{
	for (int i = 0; i < 4; i++)
		says_all_at_once(kind, WEFT_DDP_PREFER, false);
}

TCPS("asking.what-was-said-arrives-though-it-is-closed")
{
	for (int i = 0; i < 4; i++)
		says_all_at_once(kind, WEFT_DDP_OFF, true);
}

struct saying {
	int fd;
	const char *word;
};

static void says(void *of)
{
	struct saying *s = of;

	NEED(send_all(s->fd, s->word, strlen(s->word)));
}

TCPS("asking.a-fork-while-nobody-knows")
{
	struct scene s = begin(kind, WEFT_DDP_OFF);
	int client = connects(kind, s);
	char octets[16];

	EQ(send(client, "one", 3, 0), 3);
	NEED(in_child(says, &(struct saying){client, "two"}));
	says(&(struct saying){client, "three"});
	int server = accepted(s);
	NEED(recv_all(server, octets, 11));
	EQ(memcmp(octets, "onetwothree", 11), 0);
	ends(s, client, server);
}

TCPS("asking.what-a-process-said-that-ends-arrives")
{
	struct scene s = begin(kind, WEFT_DDP_OFF);
	char octets[16];
	pid_t child = fork();

	NEED(child >= 0);
	if (child == 0) {
		int client = connects(kind, s);
		_exit(send(client, "hello", 5, 0) != 5);
	}
	int server = accepted(s);
	NEED(recv_all(server, octets, 5));
	EQ(memcmp(octets, "hello", 5), 0);
	EQ(recv(server, octets, sizeof(octets), 0), 0);
	CHECK(child_ended_well(child));
	EQ(close(server), 0);
	EQ(close(s.listener), 0);
	EQ(close(s.udp), 0);
}
