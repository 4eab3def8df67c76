/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Queue pairs brought up by GID and number, as programs without a connection manager do it, and RDMA Writes with
 * immediate data over them, which not every perftest has. An ordinary program on libibverbs: it knows nothing of Weft.
 *
 *   by_gid PORT                                      serves one client
 *   by_gid PORT ADDRESS bring-up COUNT               prints, for each queue pair, the microseconds from modify_qp(INIT)
 *                                                    to the answer to its first message, without and with what the
 *                                                    program itself takes to tell the other end GID and number
 *   by_gid PORT ADDRESS latency SIZE COUNT           prints the microseconds of each half round trip, one a line
 *   by_gid PORT ADDRESS stream SIZE SECONDS DEPTH    prints the messages and the nanoseconds that the receiver counted
 *
 * The ends talk over a TCP connection of their own; both poll.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum { RECEIVES = 512, MOST_SENDS = 128, SIGNAL_EVERY = 16, BATCH = 16, INLINE = 64, WARM_UP = 1000 };
enum { BRING_UP, LATENCY, STREAM };
enum { GOES_ON = 1, LAST = 2 };

/* What the client wants, told to the server as it is: both are this program on one machine. */
struct order {
	int kind, count, size, seconds, depth;
};

struct end {
	union ibv_gid gid;
	uint32_t qpn, psn, rkey;
	uint64_t address;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static struct end own, other;
static struct order order;
static char *buffer;
static int control, gid_index;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

#define NEED(what) do { if (!(what)) die(#what); } while (0)

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void tell(const void *what, size_t length)
{
	NEED(write(control, what, length) == (ssize_t)length);
}

static void hear(void *what, size_t length)
{
	NEED(recv(control, what, length, MSG_WAITALL) == (ssize_t)length);
}

static void both_are_here(void)
{
	char octet = 0;

	tell(&octet, 1);
	hear(&octet, 1);
}

/* The GID of the address by which the control connection left. The table has 127.0.0.1 where the machine has no other
 * address: else the first one stands for it, which is as near. */
static void find_gid(void)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);
	unsigned char mapped[16] = {[10] = 0xff, [11] = 0xff};

	NEED(getsockname(control, (struct sockaddr *)&address, &length) == 0);
	memcpy(mapped + 12, &address.sin_addr, 4);
	for (gid_index = 0; ibv_query_gid(context, 1, gid_index, &own.gid) == 0; gid_index++)
		if (!memcmp(&own.gid, mapped, sizeof(mapped)))
			return;
	gid_index = 0;
	if (ntohl(address.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET && ibv_query_gid(context, 1, gid_index, &own.gid) == 0)
		return;
	fprintf(stderr, "no GID for the address of the control connection\n");
	exit(1);
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list && list[0] && (context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	NEED(pd = ibv_alloc_pd(context));
	NEED(cq = ibv_create_cq(context, 2 * (RECEIVES + MOST_SENDS), NULL, NULL, 0));
	NEED(posix_memalign((void **)&buffer, 4096, order.size) == 0);
	memset(buffer, 0x5a, order.size);
	NEED(mr = ibv_reg_mr(pd, buffer, order.size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	own.rkey = mr->rkey;
	own.address = (uintptr_t)buffer;
	find_gid();
}

static void create_qp(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = MOST_SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = INLINE},
		.qp_type = IBV_QPT_RC,
	};

	NEED(qp = ibv_create_qp(pd, &init));
	own.qpn = qp->qp_num;
	own.psn = rand() & 0xffffff;
}

static void modify(struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
	attr->qp_state = state;
	errno = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	NEED(errno == 0);
}

static void to_init(void)
{
	struct ibv_qp_attr attr = {.port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	modify(&attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void to_rts(void)
{
	struct ibv_qp_attr attr = {
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = other.qpn,
		.rq_psn = other.psn,
		.sq_psn = own.psn,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = other.gid, .sgid_index = gid_index, .hop_limit = 1}},
	};

	modify(&attr, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	modify(&attr, IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_MAX_QP_RD_ATOMIC);
}

static void exchange(void)
{
	tell(&own, sizeof(own));
	hear(&other, sizeof(other));
}

/* Receives without memory: a Write brings its own place, and the messages of a bring-up are empty. */
static void post_receives(int count)
{
	struct ibv_recv_wr list[BATCH] = {}, *bad;
	int n;

	for (; count; count -= n) {
		n = count < BATCH ? count : BATCH;
		for (int i = 0; i < n; i++)
			list[i].next = i + 1 < n ? &list[i + 1] : NULL;
		errno = ibv_post_recv(qp, list, &bad);
		NEED(errno == 0);
	}
}

static void post_send(void)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

	errno = ibv_post_send(qp, &wr, &bad);
	NEED(errno == 0);
}

static void post_write(int immediate, int signaled)
{
	struct ibv_sge sge = {own.address, order.size, mr->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htonl(immediate),
		.send_flags = (signaled ? IBV_SEND_SIGNALED : 0) | (order.size <= INLINE ? IBV_SEND_INLINE : 0),
		.wr.rdma = {other.address, other.rkey},
	}, *bad;

	errno = ibv_post_send(qp, &wr, &bad);
	NEED(errno == 0);
}

/* At least one completion; none has failed. */
static int completions(struct ibv_wc *list, int most)
{
	int n;

	while (!(n = ibv_poll_cq(cq, most, list)))
		;
	NEED(n > 0);
	for (int i = 0; i < n; i++)
		if (list[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "completion: %s\n", ibv_wc_status_str(list[i].status));
			exit(1);
		}
	return n;
}

static void wait_for(int sends, int receives)
{
	struct ibv_wc wc;

	while (sends > 0 || receives > 0) {
		completions(&wc, 1);
		if (wc.opcode & IBV_WC_RECV)
			receives--;
		else
			sends--;
	}
}

static void serve_bring_ups(void)
{
	for (int i = 0; i < order.count; i++) {
		create_qp();
		to_init();
		post_receives(1);
		exchange();
		to_rts();
		wait_for(0, 1);
		post_send();
		wait_for(1, 0);
		both_are_here();
		NEED(ibv_destroy_qp(qp) == 0);
	}
}

static void measure_bring_ups(void)
{
	double start, ready, told, end;

	for (int i = 0; i < order.count; i++) {
		create_qp();
		start = now_us();
		to_init();
		post_receives(1);
		ready = now_us();
		exchange();
		told = now_us();
		to_rts();
		post_send();
		wait_for(1, 1);
		end = now_us();
		printf("%.3f %.3f\n", end - start - (told - ready), end - start);
		both_are_here();
		NEED(ibv_destroy_qp(qp) == 0);
	}
}

static void meet(void)
{
	create_qp();
	to_init();
	post_receives(RECEIVES);
	exchange();
	to_rts();
}

/* Every round trip posts the receive that it took; sends complete in between. */
static void round_trip(int first)
{
	if (first)
		post_write(GOES_ON, 1);
	wait_for(0, 1);
	post_receives(1);
	if (!first)
		post_write(GOES_ON, 1);
}

static void ping_pong(int client)
{
	double start;

	for (int i = 0; i < WARM_UP; i++)
		round_trip(client);
	for (int i = 0; i < order.count; i++) {
		start = now_us();
		round_trip(client);
		if (client)
			printf("%.3f\n", (now_us() - start) / 2);
	}
	both_are_here();
}

/* The first completion opens the clock and does not count: its message left before. */
static void receive_stream(void)
{
	struct ibv_wc list[BATCH];
	double first = 0;
	uint64_t messages = 0, report[2];
	int last = 0, n;

	while (!last) {
		n = completions(list, BATCH);
		if (!first)
			first = now_us();
		for (int i = 0; i < n; i++)
			last |= ntohl(list[i].imm_data) == LAST;
		messages += n;
		post_receives(n);
	}
	report[0] = messages - 1;
	report[1] = (now_us() - first) * 1e3;
	tell(report, sizeof(report));
}

static void send_stream(void)
{
	struct ibv_wc list[BATCH];
	double end = now_us() + order.seconds * 1e6;
	uint64_t posted = 0, done = 0, report[2];

	do {
		for (int i = 0; i < SIGNAL_EVERY; i++)
			post_write(GOES_ON, i == SIGNAL_EVERY - 1);
		posted += SIGNAL_EVERY;
		while (posted - done + SIGNAL_EVERY > (uint64_t)order.depth)
			done += SIGNAL_EVERY * completions(list, BATCH);
	} while (now_us() < end);
	while (done < posted)
		done += SIGNAL_EVERY * completions(list, BATCH);
	post_write(LAST, 1);
	wait_for(1, 0);
	hear(report, sizeof(report));
	printf("%llu %llu\n", (unsigned long long)report[0], (unsigned long long)report[1]);
}

static void run(int client)
{
	int yes = 1;

	setsockopt(control, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	open_device();
	if (order.kind == BRING_UP) {
		client ? measure_bring_ups() : serve_bring_ups();
		return;
	}
	meet();
	if (order.kind == LATENCY)
		ping_pong(client);
	else
		client ? send_stream() : receive_stream();
}

static int accept_one(struct sockaddr_in *address)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	NEED(bind(listener, (struct sockaddr *)address, sizeof(*address)) == 0 && listen(listener, 1) == 0);
	NEED((control = accept(listener, NULL, NULL)) >= 0);
	close(listener);
	return control;
}

static int usage(const char *name)
{
	fprintf(stderr, "usage: %s PORT [ADDRESS bring-up COUNT | latency SIZE COUNT | stream SIZE SECONDS DEPTH]\n", name);
	return 2;
}

static int parse(int count, char **words)
{
	int values[3] = {1, 1, 1};

	for (int i = 1; i < count && i < 4; i++)
		if ((values[i - 1] = atoi(words[i])) <= 0)
			return 0;
	if (count == 2 && !strcmp(words[0], "bring-up"))
		order = (struct order){.kind = BRING_UP, .size = 1, .count = values[0]};
	else if (count == 3 && !strcmp(words[0], "latency"))
		order = (struct order){.kind = LATENCY, .size = values[0], .count = values[1]};
	else if (count == 4 && !strcmp(words[0], "stream"))
		order = (struct order){.kind = STREAM, .size = values[0], .seconds = values[1], .depth = values[2]};
	return order.size && (order.kind != STREAM || (order.depth >= SIGNAL_EVERY && order.depth <= MOST_SENDS));
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET};

	if (argc != 2 && (argc < 5 || !parse(argc - 3, argv + 3)))
		return usage(argv[0]);
	srand(getpid());
	address.sin_port = htons(atoi(argv[1]));
	if (argc == 2) {
		accept_one(&address);
		hear(&order, sizeof(order));
	} else {
		NEED(inet_pton(AF_INET, argv[2], &address.sin_addr) == 1);
		NEED((control = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
		NEED(connect(control, (struct sockaddr *)&address, sizeof(address)) == 0);
		tell(&order, sizeof(order));
	}
	run(argc > 2);
	return 0;
}
