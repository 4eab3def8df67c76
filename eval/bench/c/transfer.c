/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Messages one way for a time, and when each of them was given away and was there: RDMA Writes with immediate data, or
 * with -k plain sockets. An ordinary program on librdmacm: it knows nothing of Weft but how it may say how a connection
 * sends, which it does when it is told to (-p). It sleeps where it waits.
 *
 *   transfer [-k] -s SIZE -d DEPTH [-t SECONDS] PORT...                         receives, a connection for each port
 *   transfer [-k] -s SIZE -d DEPTH -c ADDRESS -t SECONDS [-p POLICY] PORT...    sends; POLICY is the first one's from
 *                                                                               half of the time on
 *
 * The sender waits for what is under way at the end, for ten seconds at most; then it ends. So does a receiver that
 * knows for how long it is sent to, by that time after its first message: what is left of a path of some Mbit/s would
 * take minutes, and what is asked of it is asked while the connection is there.
 *
 * Prints, when all is over, a line `sent N TIME`, or `done N TIME`, for each message of connection N, from 0 on, in
 * nanoseconds since 1970. What the command in TRANSFER_STAT says, with the number of this process behind it, stands
 * before those lines: it is asked while the connections are still there.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

/* As weft/rdma.h has them; elsewhere than under Weft they are refused. */
enum { RDMA_OPTION_WEFT = 0x57454654, RDMA_OPTION_WEFT_TCP = 1 };
enum { GOES_ON = 1, LAST = 2, RESOLVE_TIMEOUT_MS = 5000, MOST_PORTS = 8, BATCH = 16 };
/* The sender waits for so long for what is under way; the receiver a little longer, for one that waits no more. */
enum { DRAIN_MS = 10000, SILENCE_MS = 15000 };
/* What Weft tells of itself is as of the last tenth of a second. */
enum { STAT_DELAY_US = 300000 };

struct target {
	uint64_t address;
	uint32_t rkey;
};

struct side {
	int port, number;
	pthread_t thread;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener, *id;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct target target;
	/* What is sent, or a place for each message that may be under way and one more. */
	char *buffer;
	size_t room_in_buffer;
	int listening, socket;
	uint64_t *times;
	size_t count, room;
};

static int kernel, size, depth, seconds;
static const char *server, *policy;
static struct side sides[MOST_PORTS];
static pthread_barrier_t begun, over, told;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

#define NEED(what) do { if (!(what)) die(#what); } while (0)

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * UINT64_C(1000000000) + t.tv_nsec;
}

static void note(struct side *side, uint64_t when)
{
	if (side->count == side->room) {
		side->room = side->room ? 2 * side->room : 4096;
		NEED(side->times = realloc(side->times, side->room * sizeof(*side->times)));
	}
	side->times[side->count++] = when;
}

/* Two messages that are under way are for different memory: else the second could not be placed before the first. */
static char *place_of(const struct side *side, size_t message)
{
	return side->buffer + message % (depth + 1) * (size_t)size;
}

static struct sockaddr_in address_of(const struct side *side)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(side->port)};

	if (server)
		NEED(inet_pton(AF_INET, server, &address.sin_addr) == 1);
	return address;
}

/* Plain sockets. */

static void listen_by_socket(struct side *side)
{
	struct sockaddr_in address = address_of(side);
	int on = 1;

	NEED((side->listening = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	setsockopt(side->listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	NEED(bind(side->listening, (struct sockaddr *)&address, sizeof(address)) == 0);
	NEED(listen(side->listening, 1) == 0);
}

static void receive_by_socket(struct side *side)
{
	ssize_t got;

	NEED((side->socket = accept(side->listening, NULL, NULL)) >= 0);
	pthread_barrier_wait(&begun);
	while ((got = recv(side->socket, place_of(side, side->count), size, MSG_WAITALL)) == size)
		note(side, now_ns());
	/* A part of a message, and a reset: the sender waited no longer. */
}

static void connect_by_socket(struct side *side)
{
	struct sockaddr_in address = address_of(side);

	NEED((side->socket = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	NEED(connect(side->socket, (struct sockaddr *)&address, sizeof(address)) == 0);
}

static void send_by_socket(struct side *side, uint64_t end)
{
	uint64_t now;
	ssize_t sent, at;

	while ((now = now_ns()) < end) {
		note(side, now);
		for (at = 0; at < size; at += sent)
			NEED((sent = send(side->socket, side->buffer + at, size - at, MSG_NOSIGNAL)) > 0);
	}
	shutdown(side->socket, SHUT_WR);
}

/* The receiver has all of it, or the rest is not waited for. */
static void drain_socket(struct side *side)
{
	struct linger none = {.l_onoff = 1, .l_linger = 0};
	struct pollfd closed = {.fd = side->socket, .events = POLLIN};

	if (poll(&closed, 1, DRAIN_MS) == 0)
		setsockopt(side->socket, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

/* Verbs. */

/* The next event; it has to be the expected one. The caller acknowledges it. */
static struct rdma_cm_event *expect(struct side *side, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	NEED(rdma_get_cm_event(side->events, &event) == 0);
	if (event->event != type) {
		fprintf(stderr, "%s (status %d) instead of %s\n", rdma_event_str(event->event), event->status,
			rdma_event_str(type));
		exit(1);
	}
	return event;
}

static void post_receives(struct side *side, int count)
{
	struct ibv_recv_wr wr = {.num_sge = 0}, *bad;

	while (count--) {
		errno = ibv_post_recv(side->id->qp, &wr, &bad);
		NEED(errno == 0);
	}
}

static void create_qp(struct side *side)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = depth + 1, .max_recv_wr = 2 * depth + 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	NEED(side->pd = ibv_alloc_pd(side->id->verbs));
	NEED(side->channel = ibv_create_comp_channel(side->id->verbs));
	NEED(side->cq = ibv_create_cq(side->id->verbs, 4 * depth + 4, NULL, side->channel, 0));
	NEED(side->mr = ibv_reg_mr(side->pd, side->buffer, side->room_in_buffer,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	attr.send_cq = attr.recv_cq = side->cq;
	NEED(rdma_create_qp(side->id, side->pd, &attr) == 0);
	NEED(ibv_req_notify_cq(side->cq, 0) == 0);
}

static void listen_by_verbs(struct side *side)
{
	struct sockaddr_in address = address_of(side);

	NEED(side->events = rdma_create_event_channel());
	NEED(rdma_create_id(side->events, &side->listener, NULL, RDMA_PS_TCP) == 0);
	NEED(rdma_bind_addr(side->listener, (struct sockaddr *)&address) == 0);
	NEED(rdma_listen(side->listener, 1) == 0);
}

static void accept_by_verbs(struct side *side)
{
	struct rdma_cm_event *event = expect(side, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	side->id = event->id;
	rdma_ack_cm_event(event);
	create_qp(side);
	post_receives(side, 2 * depth);
	side->target = (struct target){.address = (uintptr_t)side->buffer, .rkey = side->mr->rkey};
	param.private_data = &side->target;
	param.private_data_len = sizeof(side->target);
	NEED(rdma_accept(side->id, &param) == 0);
	rdma_ack_cm_event(expect(side, RDMA_CM_EVENT_ESTABLISHED));
}

/*
 * Takes completions, sleeping until there are some. Gives how many, and whether the last message was among them; 0 when
 * the other end has gone, or there were none for so long.
 */
static int complete(struct side *side, int *last, int timeout_ms)
{
	struct pollfd told = {.fd = side->channel->fd, .events = POLLIN};
	struct ibv_wc wc[BATCH];
	struct ibv_cq *cq;
	void *context;
	int n;

	while ((n = ibv_poll_cq(side->cq, BATCH, wc)) == 0) {
		NEED(ibv_req_notify_cq(side->cq, 0) == 0);
		/* One that came before the notification was asked for brings none. */
		if ((n = ibv_poll_cq(side->cq, BATCH, wc)) != 0)
			break;
		if (poll(&told, 1, timeout_ms) == 0)
			return 0;
		NEED(ibv_get_cq_event(side->channel, &cq, &context) == 0);
		ibv_ack_cq_events(cq, 1);
	}
	NEED(n > 0);
	for (int i = 0; i < n; i++) {
		if (wc[i].status == IBV_WC_WR_FLUSH_ERR)
			return 0;
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc[i].status));
			exit(1);
		}
		*last |= wc[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM && ntohl(wc[i].imm_data) == LAST;
	}
	return n;
}

/* Milliseconds until what is under way at the end is waited for no longer: where little by little arrives, too. */
static int left_ms(uint64_t end)
{
	int64_t left = (int64_t)(end - now_ns()) / 1000000 + DRAIN_MS;

	return left > 0 ? (int)left : 0;
}

static void receive_by_verbs(struct side *side)
{
	int last = 0;
	uint64_t end = 0;

	accept_by_verbs(side);
	pthread_barrier_wait(&begun);
	while (!last) {
		int left = end ? left_ms(end) : SILENCE_MS;
		int n = complete(side, &last, left < SILENCE_MS ? left : SILENCE_MS);
		uint64_t now = now_ns();

		if (n == 0)
			return;
		if (seconds && !end)
			end = now + seconds * UINT64_C(1000000000);
		for (int i = 0; i < n - last; i++)
			note(side, now);
		post_receives(side, n);
	}
}

static void connect_by_verbs(struct side *side)
{
	struct sockaddr_in address = address_of(side);
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_event *event;

	NEED(side->events = rdma_create_event_channel());
	NEED(rdma_create_id(side->events, &side->id, NULL, RDMA_PS_TCP) == 0);
	NEED(rdma_resolve_addr(side->id, NULL, (struct sockaddr *)&address, RESOLVE_TIMEOUT_MS) == 0);
	rdma_ack_cm_event(expect(side, RDMA_CM_EVENT_ADDR_RESOLVED));
	NEED(rdma_resolve_route(side->id, RESOLVE_TIMEOUT_MS) == 0);
	rdma_ack_cm_event(expect(side, RDMA_CM_EVENT_ROUTE_RESOLVED));
	create_qp(side);
	NEED(rdma_connect(side->id, &param) == 0);
	event = expect(side, RDMA_CM_EVENT_ESTABLISHED);
	NEED(event->param.conn.private_data_len >= sizeof(side->target));
	memcpy(&side->target, event->param.conn.private_data, sizeof(side->target));
	rdma_ack_cm_event(event);
}

static void post_write(struct side *side, int octets, int imm)
{
	/* The message was noted before. */
	uint64_t to = (side->count + depth) % (depth + 1) * (uint64_t)size;
	struct ibv_sge sge = {.addr = (uintptr_t)side->buffer, .length = octets, .lkey = side->mr->lkey};
	struct ibv_send_wr *bad, wr = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(imm),
		.sg_list = &sge,
		.num_sge = octets > 0,
		.wr.rdma = {.remote_addr = side->target.address + to, .rkey = side->target.rkey},
	};

	errno = ibv_post_send(side->id->qp, &wr, &bad);
	NEED(errno == 0);
}

static void follow(struct side *side)
{
	if (rdma_set_option(side->id, RDMA_OPTION_WEFT, RDMA_OPTION_WEFT_TCP, (void *)policy, strlen(policy)))
		die("rdma_set_option");
	printf("changed %d %llu\n", side->number, (unsigned long long)now_ns());
}

static void send_by_verbs(struct side *side, uint64_t end)
{
	uint64_t now, half = end - seconds * UINT64_C(500000000);
	int under_way = 0, last = 0, changes = policy && side->number == 0;

	while ((now = now_ns()) < end) {
		if (changes && now >= half) {
			follow(side);
			changes = 0;
		}
		if (under_way == depth) {
			int n = complete(side, &last, left_ms(end));

			if (n == 0)
				return;
			under_way -= n;
			continue;
		}
		note(side, now);
		post_write(side, size, GOES_ON);
		under_way++;
	}
	post_write(side, 0, LAST);
	under_way++;
	while (under_way && left_ms(end) > 0) {
		int n = complete(side, &last, left_ms(end));

		if (n == 0)
			return;
		under_way -= n;
	}
}

/* The receiver goes first, or whoever waits no longer. */
static void part(struct side *side)
{
	struct pollfd told;

	if (kernel) {
		if (server)
			drain_socket(side);
		close(side->socket);
		return;
	}
	told = (struct pollfd){.fd = side->events->fd, .events = POLLIN};
	if (server)
		poll(&told, 1, DRAIN_MS);
	rdma_disconnect(side->id);
}

static void *run(void *of)
{
	struct side *side = of;

	side->room_in_buffer = (server ? 1 : depth + 1) * (size_t)size;
	NEED(posix_memalign((void **)&side->buffer, 4096, side->room_in_buffer) == 0);
	memset(side->buffer, 0x5a, side->room_in_buffer);
	if (server) {
		kernel ? connect_by_socket(side) : connect_by_verbs(side);
		pthread_barrier_wait(&begun);
		uint64_t end = now_ns() + seconds * UINT64_C(1000000000);
		kernel ? send_by_socket(side, end) : send_by_verbs(side, end);
	} else {
		kernel ? receive_by_socket(side) : receive_by_verbs(side);
	}
	pthread_barrier_wait(&over);
	/* What is asked of this process has been said. */
	pthread_barrier_wait(&told);
	part(side);
	return NULL;
}

static void tell_statistics(void)
{
	const char *command = getenv("TRANSFER_STAT");
	char line[4096];

	if (!command)
		return;
	usleep(STAT_DELAY_US);
	snprintf(line, sizeof(line), "%s %d", command, getpid());
	fflush(stdout);
	if (system(line))
		fprintf(stderr, "%s failed\n", line);
}

int main(int argc, char **argv)
{
	int option, count;

	while ((option = getopt(argc, argv, "ks:d:c:t:p:")) != -1)
		switch (option) {
		case 'k': kernel = 1; break;
		case 's': size = atoi(optarg); break;
		case 'd': depth = atoi(optarg); break;
		case 'c': server = optarg; break;
		case 't': seconds = atoi(optarg); break;
		case 'p': policy = optarg; break;
		default: return 2;
		}
	count = argc - optind;
	if (size <= 0 || depth <= 0 || count < 1 || count > MOST_PORTS || (server && seconds <= 0)) {
		fprintf(stderr, "usage: transfer [-k] -s SIZE -d DEPTH [-t SECONDS] [-c ADDRESS [-p POLICY]] PORT...\n");
		return 2;
	}
	pthread_barrier_init(&begun, NULL, count);
	pthread_barrier_init(&over, NULL, count + 1);
	pthread_barrier_init(&told, NULL, count + 1);
	for (int i = 0; i < count; i++) {
		sides[i].number = i;
		sides[i].port = atoi(argv[optind + i]);
		if (!server)
			kernel ? listen_by_socket(&sides[i]) : listen_by_verbs(&sides[i]);
	}
	if (!server) {
		puts("ready");
		fflush(stdout);
	}
	for (int i = 0; i < count; i++)
		NEED(pthread_create(&sides[i].thread, NULL, run, &sides[i]) == 0);
	pthread_barrier_wait(&over);
	tell_statistics();
	pthread_barrier_wait(&told);
	for (int i = 0; i < count; i++)
		NEED(pthread_join(sides[i].thread, NULL) == 0);
	for (int i = 0; i < count; i++)
		for (size_t n = 0; n < sides[i].count; n++)
			printf("%s %d %llu\n", server ? "sent" : "done", i, (unsigned long long)sides[i].times[n]);
	return 0;
}
