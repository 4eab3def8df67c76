/* Rsockets and forks. */
#include "env.h"

static void send_word(void *of)
{
	talks(((struct ends *)of)->a, ((struct ends *)of)->b);
}

CASE("processes.a-child-uses-its-parents-connection")
{
	struct ends e = ends_of(AF_INET);

	child_ended_well(start_child(send_word, &e));
	talks(e.a, e.b);
	child_ended_well(start_child(send_word, &e));
	talks(e.b, e.a);
	ends_close(e);
}

enum { ROUNDS = 200 };

static void send_many(void *of)
{
	for (int i = 0; i < ROUNDS; i++)
		EQ(rsend(*(int *)of, "0123456789", 10, 0), 10);
}

CASE("processes.parent-and-child-send-at-once")
{
	struct ends e = ends_of(AF_INET);
	char octets[2 * ROUNDS * 10];

	pid_t child = start_child(send_many, &e.a);
	send_many(&e.a);
	if (recv_all(e.b, octets, sizeof(octets)))
		for (size_t i = 0; i < sizeof(octets); i += 10)
			if (!SAME(octets + i, "0123456789", 10))
				break;
	child_ended_well(child);
	ends_close(e);
}

static void close_both(void *of)
{
	struct ends *e = of;

	EQ(rclose(e->a), 0);
	EQ(rclose(e->b), 0);
}

CASE("processes.a-childs-close-is-not-the-end")
{
	struct ends e = ends_of(AF_INET);

	talks(e.a, e.b);
	child_ended_well(start_child(close_both, &e));
	stays_quiet(e.b);
	talks(e.a, e.b);
	talks(e.b, e.a);
	ends_close(e);
}

static void serve(void *of)
{
	char word[6] = "";
	int fd = raccept(*(int *)of, NULL, NULL);

	NEED(fd >= 0);
	EQ(rrecv(fd, word, 6, MSG_WAITALL), 6);
	EQ(rsend(fd, word, 6, 0), 6);
	EQ(rclose(fd), 0);
}

CASE("processes.children-accept-for-their-parent")
{
	int listener = a_listener(AF_INET);
	struct name n = name_of(listener);
	pid_t children[3];
	char word[6] = "";

	for (int i = 0; i < 3; i++)
		children[i] = start_child(serve, &listener);
	for (int i = 0; i < 3; i++) {
		int fd = an_rsocket(AF_INET);
		EQ(rconnect(fd, &n.any, n.length), 0);
		EQ(rsend(fd, "hello", 6, 0), 6);
		EQ(rrecv(fd, word, 6, MSG_WAITALL), 6);
		SAME(word, "hello", 6);
		EQ(rclose(fd), 0);
	}
	for (int i = 0; i < 3; i++)
		child_ended_well(children[i]);
}

static void begin_anew(void *of)
{
	struct ends e = ends_of(*(long *)of);

	talks(e.a, e.b);
	ends_close(e);
}

CASE("processes.a-child-makes-rsockets-of-its-own")
{
	long family = AF_INET;

	child_ended_well(start_child(begin_anew, &family));
	begin_anew(&family);
	child_ended_well(start_child(begin_anew, &family));
}
