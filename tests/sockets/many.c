/* Many connections in one set, and many sets with one connection: in one thread, in threads and in processes. */
#include "flow.h"
#include "ready.h"
#include "waiter.h"

enum { MANY = 1000, MESSAGE_MAX = 300 };

/* As many pairs as there are numbers for, and no more than MANY. */
static int how_many(void)
{
	struct rlimit limit;

	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	rlim_t pairs = limit.rlim_cur / 2 - 50;
	/* A look at a thousand takes about as long as the storm lets a call go on. */
	if (case_storm)
		pairs = pairs < MANY / 4 ? pairs : MANY / 4;
	if (limit.rlim_cur < 200)
		SKIP("this machine has only %llu descriptors for a process", (unsigned long long)limit.rlim_cur);
	return pairs < MANY ? (int)pairs : MANY;
}

/* All by one listener. */
static void connect_all(long kind, struct ends *e, int count)
{
	int listener = a_listener(kind, 64);
	struct name name = name_of(listener);

	for (int i = 0; i < count; i++) {
		e[i].a = a_socket(kind);
		NEED(connect(e[i].a, &name.any, name.length) == 0);
		NEED((e[i].b = accept(listener, NULL, NULL)) >= 0);
	}
	NEED(close(listener) == 0);
}

/* A message of a size of its own, in two parts; each is told of, read to its end in parts, and is not told again. */
static void each_has_a_message(long kind, uint32_t mode)
{
	static struct ends e[MANY];
	static struct flow in[MANY];
	struct epoll_event events[64];
	int count = how_many(), set = a_poll();
	unsigned long left = 0;

	connect_all(kind, e, count);
	for (int i = 0; i < count; i++) {
		struct epoll_event event = {.events = EPOLLIN | mode, .data.u32 = (uint32_t)i};
		NEED(epoll_ctl(set, EPOLL_CTL_ADD, e[i].b, &event) == 0);
		in[i] = (struct flow){(unsigned)i, 0};
	}
	EQ(events_of(set, NULL, 0), 0);
	/* Neighbours in the list are not neighbours in time. */
	for (int first = 0; first < 7; first++)
		for (int i = first; i < count; i += 7) {
			struct flow out = {(unsigned)i, 0};
			NEED(flow_send(&out, e[i].a, 1 + (size_t)i % (MESSAGE_MAX / 2)));
			NEED(flow_send(&out, e[i].a, 7));
			left += out.at;
		}
	double end = deadline();
	while (left > 0 && now() < end) {
		int ready = epoll_wait(set, events, 64, patience);
		NEED(ready > 0 || (ready < 0 && errno == EINTR));
		for (int i = 0; i < ready; i++) {
			unsigned at = events[i].data.u32;
			char octets[MESSAGE_MAX];
			ssize_t got;
			EQ(events[i].events, EPOLLIN);
			while ((got = recv(e[at].b, octets, 100, MSG_DONTWAIT)) > 0) {
				NEED(flow_is(&in[at], octets, (size_t)got));
				left -= (unsigned long)got;
				if (!(mode & EPOLLET))
					break;
			}
			NEED(got > 0 || errno == EAGAIN);
		}
	}
	EQ(left, 0);
	for (int i = 0; i < count; i++)
		EQ(in[i].at, 8 + (size_t)i % (MESSAGE_MAX / 2));
	EQ(events_of(set, NULL, mode & EPOLLET ? 0 : QUIET), 0);
	/* And the ends of all. */
	for (int i = 0; i < count; i++)
		EQ(close(e[i].a), 0);
	for (int i = 0; i < count; i++) {
		char octet;
		EQ(recv(e[i].b, &octet, 1, 0), 0);
		EQ(close(e[i].b), 0);
	}
	EQ(close(set), 0);
}

TCPS("many.a-thousand-in-one-set")
{
	each_has_a_message(kind, 0);
}

TCPS("many.a-thousand-in-one-set-by-edges")
{
	each_has_a_message(kind, EPOLLET);
}

TCPS("many.a-thousand-in-one-poll")
{
	static struct ends e[MANY];
	static struct pollfd p[MANY];
	int count = how_many();
	char octets[16];

	connect_all(kind, e, count);
	for (int i = 0; i < count; i++)
		p[i] = (struct pollfd){e[i].b, POLLIN, 0};
	EQ(TEMP_FAILURE_RETRY(poll(p, (nfds_t)count, 0)), 0);
	for (int i = 0; i < count; i += 10)
		EQ(send(e[i].a, "message", 7, 0), 7);
	for (int i = 0; i < count; i += 10)
		NEED(octets_come(e[i].b, 7));
	/* A part of each, and then the rest. */
	for (int round = 0; round < 2; round++) {
		EQ(TEMP_FAILURE_RETRY(poll(p, (nfds_t)count, patience)), (count + 9) / 10);
		for (int i = 0; i < count; i++) {
			EQ(p[i].revents, i % 10 ? 0 : POLLIN);
			if (p[i].revents)
				EQ(recv(p[i].fd, octets, round ? 16 : 3, 0), round ? 4 : 3);
		}
	}
	EQ(TEMP_FAILURE_RETRY(poll(p, (nfds_t)count, 0)), 0);
	for (int i = 0; i < count; i++)
		ends_close(e[i]);
}

TCPS("many.looks-without-waiting-find-each-message")
{
	struct ends e = ends_of(kind);
	struct flow out = {1, 0}, in = out;
	char octets[64];
	int set = a_poll();

	watch(set, e.b, EPOLLIN);
	for (int i = 0; i < 300; i++) {
		NEED(flow_send(&out, e.a, 1 + (size_t)i % 50));
		/* As event loops do that never sleep. */
		double end = deadline();
		while (in.at < out.at && now() < end) {
			struct epoll_event got;
			int ready = epoll_wait(set, &got, 1, 0);
			if (ready <= 0)
				continue;
			ssize_t some = recv(e.b, octets, sizeof(octets), MSG_DONTWAIT);
			NEED(some > 0 && flow_is(&in, octets, (size_t)some));
		}
		EQ(in.at, out.at);
		EQ(events_of(set, NULL, 0), 0);
	}
	EQ(close(set), 0);
	ends_close(e);
}

/* --- several who wait for one */

struct waker {
	int set, fd;
	pid_t tid;
	unsigned long woken, taken;
};

/* Takes what it is woken for, until the stream ends. */
static void *serve(void *of)
{
	struct waker *w = of;
	struct epoll_event event;
	char octet;

	tell(&w->tid);
	for (;;) {
		int ready = epoll_wait(w->set, &event, 1, patience);
		if (ready < 0 && errno == EINTR)
			continue;
		NEED(ready == 1);
		w->woken++;
		/* Another may have been quicker. */
		ssize_t got = recv(w->fd, &octet, 1, MSG_DONTWAIT);
		if (got == 0)
			return NULL;
		NEED(got == 1 || errno == EAGAIN);
		w->taken += got == 1;
	}
}

static void several_wait(long kind, uint32_t mode, bool one_set)
{
	enum { SEVERAL = 4, MESSAGES = 200 };
	struct ends e = ends_of(kind);
	struct waker w[SEVERAL] = {};
	pthread_t threads[SEVERAL];
	unsigned long taken = 0;
	int set = a_poll();

	if (one_set)
		watch(set, e.b, EPOLLIN | mode);
	for (int i = 0; i < SEVERAL; i++) {
		w[i] = (struct waker){.set = one_set ? set : a_poll(), .fd = e.b};
		if (!one_set)
			watch(w[i].set, e.b, EPOLLIN | mode);
		NEED(pthread_create(&threads[i], NULL, serve, &w[i]) == 0);
	}
	for (int i = 0; i < SEVERAL; i++)
		until_asleep(&w[i].tid);
	for (int i = 0; i < MESSAGES; i++) {
		EQ(send(e.a, "x", 1, 0), 1);
		if (i % 10 == 0)
			sleep_ms(1);
	}
	EQ(shutdown(e.a, SHUT_WR), 0);
	for (int i = 0; i < SEVERAL; i++) {
		NEED(join_soon(threads[i], NULL));
		taken += w[i].taken;
		if (!one_set)
			EQ(close(w[i].set), 0);
	}
	/* Nobody slept on what was there, and nothing was had twice. */
	EQ(taken, MESSAGES);
	EQ(close(set), 0);
	ends_close(e);
}

TCPS("many.threads-wait-in-one-set")
{
	several_wait(kind, 0, true);
}

TCPS("many.threads-wait-in-a-set-each")
{
	several_wait(kind, 0, false);
}

TCPS("many.threads-wait-in-a-set-each-exclusively")
{
	several_wait(kind, EPOLLEXCLUSIVE, false);
}

/* --- sets in other processes */

static void child_waits_in_a_set_of_its_own(void *of)
{
	struct ends *e = of;
	struct flow in = {2, 0}, out = {3, 0};
	int set = a_poll();
	char octets[64];

	close(e->a);
	watch(set, e->b, EPOLLIN);
	while (in.at < 500) {
		NEED(events_of(set, NULL, patience) == 1);
		ssize_t got = recv(e->b, octets, sizeof(octets), MSG_DONTWAIT);
		NEED(got > 0 && flow_is(&in, octets, (size_t)got));
	}
	EQ(events_of(set, NULL, 0), 0);
	NEED(flow_send(&out, e->b, 100));
	/* The stream ends with the parent's last close. */
	EQ(events_of(set, NULL, patience), 1);
	EQ(recv(e->b, octets, 1, 0), 0);
}

TCPS("many.a-child-waits-in-a-set-of-its-own")
{
	struct ends e = ends_of(kind);
	struct flow out = {2, 0}, in = {3, 0};
	int set = a_poll();
	pid_t child = start_child(child_waits_in_a_set_of_its_own, &e);

	EQ(close(e.b), 0);
	watch(set, e.a, EPOLLIN);
	for (int i = 0; i < 10; i++) {
		NEED(flow_send(&out, e.a, 50));
		if (i % 3 == 0)
			sleep_ms(2);
	}
	EQ(events_of(set, NULL, patience), 1);
	NEED(flow_recv(&in, e.a, 100));
	EQ(close(e.a), 0);
	CHECK(child_ended_well(child));
	EQ(close(set), 0);
}

struct inherited_set {
	struct ends e;
	int set;
};

static void child_waits_in_the_parents_set(void *of)
{
	struct inherited_set *s = of;
	struct epoll_event got = {};
	char octet;

	NEED(events_of(s->set, &got, patience) == 1);
	EQ(got.data.u64, (uint64_t)s->e.b | 0x1234500000000);
	EQ(recv(s->e.b, &octet, 1, 0), 1);
	EQ(octet, '1');
	/* The rest is there for whoever asks. */
	EQ(events_of(s->set, NULL, 0), 1);
}

TCPS("many.a-child-waits-in-its-parents-set")
{
	struct inherited_set s = {ends_of(kind), a_poll()};
	char octet;

	watch(s.set, s.e.b, EPOLLIN);
	pid_t child = start_child(child_waits_in_the_parents_set, &s);
	EQ(send(s.e.a, "12", 2, 0), 2);
	CHECK(child_ended_well(child));
	EQ(events_of(s.set, NULL, 0), 1);
	EQ(recv(s.e.b, &octet, 1, 0), 1);
	EQ(octet, '2');
	EQ(events_of(s.set, NULL, 0), 0);
	EQ(close(s.set), 0);
	ends_close(s.e);
}

static void child_takes_all(void *of)
{
	struct ends *e = of;
	struct flow in = {4, 0};

	NEED(flow_recv(&in, e->b, 300));
	EQ(wait_for(e->b, POLLIN, 0), 0);
}

TCPS("many.what-a-child-took-is-ready-nowhere")
{
	struct ends e = ends_of(kind);
	struct flow out = {4, 0};
	int set = a_poll();

	watch(set, e.b, EPOLLIN);
	NEED(flow_send(&out, e.a, 300) && octets_come(e.b, 300));
	EQ(events_of(set, NULL, 0), 1);
	CHECK(in_child(child_takes_all, &e));
	EQ(events_of(set, NULL, 0), 0);
	EQ(wait_for(e.b, POLLIN, 0), 0);
	FAILS(recv(e.b, &set, 1, MSG_DONTWAIT), EAGAIN);
	EQ(close(set), 0);
	ends_close(e);
}
