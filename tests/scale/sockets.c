/* The same messages over TCP, as a careful program with an epoll set sends them. */
#include "crowd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READY = 64, UNNAMED = -1 };

struct end {
	int fd;
	int64_t connection; /* which one it is; a server learns it from the first message */
	uint8_t *in;	    /* what has come of the next messages, */
	uint32_t have;	    /* so many octets */
	uint8_t *out;	    /* `window` messages that are sent */
};

static int set = -1, listener = -1;
static struct end *ends, **by_number;

static struct sockaddr_in address(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(options.port)};

	MUST(inet_pton(AF_INET, options.address, &a.sin_addr) == 1, "address %s", options.address);
	return a;
}

static void watch(struct end *end, int operation, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = end};

	MUST(epoll_ctl(set, operation, end->fd, &event) == 0, "epoll_ctl");
}

static void make_room(void)
{
	MUST((set = epoll_create1(EPOLL_CLOEXEC)) >= 0, "epoll_create1");
	ends = room(options.count * sizeof(*ends));
	by_number = room(options.count * sizeof(*by_number));
	uint8_t *in = room((size_t)options.count * options.size);
	uint8_t *out = room((size_t)options.count * options.size * options.window);
	for (uint32_t i = 0; i < options.count; i++) {
		ends[i].in = in + (size_t)i * options.size;
		ends[i].out = out + (size_t)i * options.size * options.window;
		ends[i].connection = options.server ? UNNAMED : (int64_t)i;
		by_number[i] = options.server ? NULL : &ends[i];
	}
}

static void no_delay(int fd)
{
	int on = 1;

	MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
}

static void be_there(void)
{
	struct sockaddr_in a = address();
	int on = 1;

	make_room();
	MUST((listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0, "socket");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	MUST(bind(listener, (struct sockaddr *)&a, sizeof(a)) == 0, "bind");
	MUST(listen(listener, 4096) == 0, "listen");
}

static void take_all(void)
{
	for (uint32_t i = 0; i < options.count; i++) {
		ends[i].fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		MUST(ends[i].fd >= 0, "accept");
		no_delay(ends[i].fd);
		watch(&ends[i], EPOLL_CTL_ADD, EPOLLIN);
	}
}

static void begin_connect(struct end *end)
{
	struct sockaddr_in a = address();

	end->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	MUST(end->fd >= 0, "socket");
	no_delay(end->fd);
	int result = connect(end->fd, (struct sockaddr *)&a, sizeof(a));
	MUST(result == 0 || errno == EINPROGRESS, "connect");
	watch(end, EPOLL_CTL_ADD, EPOLLOUT);
}

static void connect_all(uint64_t *each, uint64_t *all)
{
	struct epoll_event events[READY];
	uint64_t start = now_ns();
	uint32_t connected = 0;

	for (uint32_t i = 0; i < options.count; i++) {
		each[i] = now_ns();
		begin_connect(&ends[i]);
	}
	while (connected < options.count) {
		int ready = epoll_wait(set, events, READY, 30000);
		MUST(ready > 0, "%u of %u connected", connected, options.count);
		for (int i = 0; i < ready; i++) {
			struct end *end = events[i].data.ptr;
			int error = 0;
			socklen_t length = sizeof(error);
			getsockopt(end->fd, SOL_SOCKET, SO_ERROR, &error, &length);
			MUST(error == 0, "connect: %s", strerror(error));
			each[end->connection] = now_ns() - each[end->connection];
			watch(end, EPOLL_CTL_MOD, EPOLLIN);
			connected++;
		}
	}
	*all = now_ns() - start;
}

/* --- messages */

static uint8_t *buffer(uint32_t connection, uint32_t number)
{
	return by_number[connection]->out + (size_t)(number % options.window) * options.size;
}

/* Sends a whole message. A socket that is full is waited for: its peer reads all the time. */
static void send_message(uint32_t connection, const struct header *h)
{
	struct end *end = by_number[connection];
	const uint8_t *at = buffer(connection, h->number);

	for (uint32_t done = 0; done < h->size;) {
		ssize_t octets = send(end->fd, at + done, h->size - done, MSG_NOSIGNAL);
		MUST(octets >= 0 || errno == EAGAIN, "send");
		if (octets > 0)
			done += (uint32_t)octets;
	}
}

/* Gives up what is whole. */
static void deliver(struct end *end, arrival *arrived)
{
	struct header h;

	while (end->have >= sizeof(h)) {
		memcpy(&h, end->in, sizeof(h));
		MUST(h.size >= sizeof(h) && h.size <= options.size, "a message of %u octets", h.size);
		if (end->have < h.size)
			return;
		if (end->connection == UNNAMED) {
			MUST(h.connection < options.count && !by_number[h.connection], "connection %u", h.connection);
			end->connection = h.connection;
			by_number[h.connection] = end;
		}
		arrived((uint32_t)end->connection, end->in);
		end->have -= h.size;
		memmove(end->in, end->in + h.size, end->have);
	}
}

static void read_end(struct end *end, arrival *arrived)
{
	uint32_t asked = options.size - end->have;
	ssize_t octets = recv(end->fd, end->in + end->have, asked, 0);

	if (octets < 0 && errno == EAGAIN)
		return;
	MUST(octets > 0 || options.server, "recv");
	if (octets <= 0) {
		watch(end, EPOLL_CTL_DEL, 0);
		return;
	}
	end->have += (uint32_t)octets;
	deliver(end, arrived);
}

static void receive(bool asleep, arrival *arrived)
{
	struct epoll_event events[READY];
	int ready = epoll_wait(set, events, READY, asleep ? -1 : 0);

	for (int i = 0; i < ready; i++)
		read_end(events[i].data.ptr, arrived);
}

const struct carrier sockets = {
	.listen = be_there,
	.accept = take_all,
	.prepare = make_room,
	.connect = connect_all,
	.buffer = buffer,
	.send = send_message,
	.receive = receive,
};
