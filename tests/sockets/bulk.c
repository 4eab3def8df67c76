/* Megabytes both ways at once, in calls of any kind and size, with and without waiting; the two ends each end their own
   way when all is sent. */
#include "flow.h"
#include "ready.h"
#include "ways.h"

enum { TOTAL = 2 << 20, LARGEST = 70000 };

/* One end: what it has yet to send, and what came. */
struct end {
	int fd;
	struct flow out, in;
	unsigned seed;
	bool peeks, sent_all, got_all;
	char *octets;
};

static struct end end_of(int fd, unsigned out, unsigned in)
{
	struct end end = {.fd = fd, .out = {out, 0}, .in = {in, 0}, .seed = out, .octets = malloc(LARGEST)};

	NEED(end.octets);
	return end;
}

/* The sizes of calls: now small, now large. */
static size_t some(struct end *end)
{
	return 1 + any_below(&end->seed, LARGEST - 1);
}

/* One call each; false where it would have waited. */
static bool send_some(struct end *end)
{
	struct flow next = end->out;
	size_t length = some(end), left = TOTAL - end->out.at;

	length = length < left ? length : left;
	flow_next(&next, end->octets, length);
	ssize_t sent = put((enum way_out)any_below(&end->seed, WAYS_OUT), end->fd, end->octets, length);
	if (sent < 0) {
		NEED(errno == EAGAIN || errno == EINTR);
		return errno == EINTR;
	}
	end->out.at += (uint64_t)sent;
	if (end->out.at == TOTAL) {
		EQ(shutdown(end->fd, SHUT_WR), 0);
		end->sent_all = true;
	}
	return true;
}

static bool recv_some(struct end *end)
{
	size_t room = some(end);

	if (end->peeks) {
		struct flow ahead = end->in;
		ssize_t seen = recv(end->fd, end->octets, room, MSG_PEEK | MSG_DONTWAIT);
		if (seen > 0)
			NEED(flow_is(&ahead, end->octets, (size_t)seen));
	}
	ssize_t got = get((enum way_in)any_below(&end->seed, WAYS_IN), end->fd, end->octets, room);
	if (got < 0) {
		NEED(errno == EAGAIN || errno == EINTR);
		return errno == EINTR;
	}
	NEED(flow_is(&end->in, end->octets, (size_t)got));
	if (got == 0) {
		EQ(end->in.at, TOTAL);
		end->got_all = true;
	}
	return got > 0;
}

static void is_over(struct end *end)
{
	EQ(end->out.at, TOTAL);
	EQ(end->in.at, TOTAL);
	EQ(get_int(end->fd, SOL_SOCKET, SO_ERROR), 0);
	EQ(close(end->fd), 0);
	free(end->octets);
}

/* --- a thread for each way of each end */

static void *sends(void *of)
{
	struct end *end = of;

	while (!end->sent_all)
		send_some(end);
	return NULL;
}

static void *receives(void *of)
{
	struct end *end = of;

	while (!end->got_all)
		recv_some(end);
	return NULL;
}

static void by_threads(struct ends e, bool peeks)
{
	/* The ways of an end apart, as they run at the same time. */
	struct end ends[4] = {end_of(e.a, 1, 2), end_of(e.a, 1, 2), end_of(e.b, 2, 1), end_of(e.b, 2, 1)};
	pthread_t threads[4];

	for (int i = 0; i < 4; i++) {
		ends[i].peeks = peeks;
		NEED(pthread_create(&threads[i], NULL, i % 2 ? receives : sends, &ends[i]) == 0);
	}
	for (int i = 0; i < 4; i++)
		NEED(join_soon(threads[i], NULL));
	for (int i = 0; i < 4; i++)
		free(ends[i].octets);
	EQ(ends[1].in.at, TOTAL);
	EQ(ends[3].in.at, TOTAL);
	ends_close(e);
}

TCPS("bulk.by-threads")
{
	by_threads(ends_of(kind), false);
}

TCPS("bulk.by-threads-that-look-first")
{
	by_threads(ends_of(kind), true);
}

/* --- one thread for both ends, without waiting */

static void by_poll(struct ends e, bool peeks)
{
	struct end ends[2] = {end_of(e.a, 1, 2), end_of(e.b, 2, 1)};
	double last = deadline() + 10;

	for (int i = 0; i < 2; i++) {
		set_nonblocking(ends[i].fd, true);
		ends[i].peeks = peeks;
	}
	while (!(ends[0].sent_all && ends[0].got_all && ends[1].sent_all && ends[1].got_all)) {
		struct pollfd p[2];
		NEED(now() < last);
		for (int i = 0; i < 2; i++) {
			int events = (ends[i].got_all ? 0 : POLLIN) | (ends[i].sent_all ? 0 : POLLOUT);
			p[i] = (struct pollfd){events ? ends[i].fd : -1, (short)events, 0};
		}
		int ready = poll(p, 2, patience);
		NEED(ready > 0 || (ready < 0 && errno == EINTR));
		for (int i = 0; i < 2 && ready > 0; i++) {
			/* Trusted: what is told to be ready moves something. */
			if (p[i].revents & POLLIN)
				NEED(recv_some(&ends[i]) || ends[i].got_all);
			if (p[i].revents & POLLOUT)
				NEED(send_some(&ends[i]));
		}
	}
	is_over(&ends[0]);
	is_over(&ends[1]);
}

TCPS("bulk.by-poll")
{
	by_poll(ends_of(kind), false);
}

TCPS("bulk.by-poll-that-looks-first")
{
	by_poll(ends_of(kind), true);
}

TCPS("bulk.by-poll-with-small-buffers")
{
	by_poll(tight_ends(kind), false);
}

/* --- by edges: each tells once, and all is done that can be */

static void by_edges(struct ends e)
{
	struct end ends[2] = {end_of(e.a, 1, 2), end_of(e.b, 2, 1)};
	int set = a_poll(), open = 2;

	for (int i = 0; i < 2; i++) {
		struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
					    .data.u32 = (uint32_t)i};
		set_nonblocking(ends[i].fd, true);
		NEED(epoll_ctl(set, EPOLL_CTL_ADD, ends[i].fd, &event) == 0);
	}
	while (open > 0) {
		struct epoll_event events[2];
		int ready = epoll_wait(set, events, 2, patience);
		NEED(ready > 0 || (ready < 0 && errno == EINTR));
		for (int i = 0; i < ready; i++) {
			struct end *end = &ends[events[i].data.u32];
			bool was_open = !(end->sent_all && end->got_all);
			while (!end->got_all && recv_some(end))
				;
			while (!end->sent_all && send_some(end))
				;
			open -= was_open && end->sent_all && end->got_all;
		}
	}
	is_over(&ends[0]);
	is_over(&ends[1]);
	EQ(close(set), 0);
}

TCPS("bulk.by-edges")
{
	by_edges(ends_of(kind));
}

TCPS("bulk.by-edges-with-small-buffers")
{
	by_edges(tight_ends(kind));
}

/* --- a process for each end, one of which waits in its calls */

static void child_polls_its_end(void *of)
{
	struct ends *e = of;
	struct end end = end_of(e->b, 2, 1);

	close(e->a);
	set_nonblocking(end.fd, true);
	while (!(end.sent_all && end.got_all)) {
		int events = wait_for(end.fd, (end.got_all ? 0 : POLLIN) | (end.sent_all ? 0 : POLLOUT), patience);
		NEED(events);
		if (events & POLLIN)
			recv_some(&end);
		if (events & POLLOUT && !end.sent_all)
			send_some(&end);
	}
	is_over(&end);
}

TCPS("bulk.between-processes")
{
	struct ends e = ends_of(kind);
	struct end ways[2] = {end_of(e.a, 1, 2), end_of(e.a, 1, 2)};
	pthread_t thread;
	pid_t child = start_child(child_polls_its_end, &e);

	EQ(close(e.b), 0);
	NEED(pthread_create(&thread, NULL, receives, &ways[1]) == 0);
	sends(&ways[0]);
	NEED(join_soon(thread, NULL));
	CHECK(child_ended_well(child));
	EQ(ways[1].in.at, TOTAL);
	EQ(close(e.a), 0);
	free(ways[0].octets);
	free(ways[1].octets);
}
