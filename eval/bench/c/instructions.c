/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Two queue pairs of one process, one thread and one completion queue, brought up with each other by GID and number:
 * what a message takes in instructions, without a second program whose spinning would be counted too. It runs under
 * callgrind, with few messages and with many; the difference has neither the start nor the end of the program in it.
 * An ordinary program on libibverbs: it knows nothing of Weft.
 *
 *   instructions latency OP SIZE COUNT           COUNT messages one at a time, there and back in turn
 *   instructions stream OP SIZE COUNT LIST       COUNT messages in one direction, LIST a post; after each 128 of them
 *                                                it waits until they have arrived
 *
 * OP: send, write, read, write-imm, fetch-add, compare-swap; uc-send, uc-write on queue pairs of type UC.
 */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

enum { ROUND = 128, SENDS = 2 * ROUND, RECEIVES = 2 * ROUND, BATCH = 32, SIGNAL_EVERY = 32, INLINE = 64 };

struct op {
	const char *name;
	enum ibv_wr_opcode code;
	enum ibv_qp_type type;
};

static const struct op ops[] = {
	{"send", IBV_WR_SEND, IBV_QPT_RC},
	{"write", IBV_WR_RDMA_WRITE, IBV_QPT_RC},
	{"read", IBV_WR_RDMA_READ, IBV_QPT_RC},
	{"write-imm", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QPT_RC},
	{"fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_QPT_RC},
	{"compare-swap", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QPT_RC},
	{"uc-send", IBV_WR_SEND, IBV_QPT_UC},
	{"uc-write", IBV_WR_RDMA_WRITE, IBV_QPT_UC},
};

/* One of the two ends. The first half of its buffer is sent from, the second half is written to. */
struct end {
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	volatile char *buffer;
	int unsignaled;
};

static const struct op *op;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static union ibv_gid gid;
static size_t size;
static long posted, signaled, completed, received;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

#define NEED(what) do { if (!(what)) die(#what); } while (0)

static int is_atomic(void)
{
	return op->code == IBV_WR_ATOMIC_FETCH_AND_ADD || op->code == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* Whether the sender waits for what comes back. */
static int asks(void)
{
	return op->code == IBV_WR_RDMA_READ || is_atomic();
}

/* Whether a message takes a receive at the other end. */
static int takes_receive(void)
{
	return op->code == IBV_WR_SEND || op->code == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	NEED(list && list[0] && (context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	/* Any address of the machine will do: what it sends to itself does not leave it. */
	NEED(ibv_query_gid(context, 1, 0, &gid) == 0);
	NEED(pd = ibv_alloc_pd(context));
	NEED(cq = ibv_create_cq(context, 2 * (SENDS + RECEIVES), NULL, NULL, 0));
}

static void modify(struct end *end, struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
	attr->qp_state = state;
	errno = ibv_modify_qp(end->qp, attr, mask | IBV_QP_STATE);
	NEED(errno == 0);
}

static void create(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = INLINE},
		.qp_type = op->type,
	};
	int access = IBV_ACCESS_REMOTE_WRITE;
	struct ibv_qp_attr attr = {.port_num = 1};

	if (op->type == IBV_QPT_RC)
		access |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	NEED(posix_memalign((void **)&end->buffer, 4096, 2 * size) == 0);
	memset((void *)end->buffer, 0, 2 * size);
	NEED(end->mr = ibv_reg_mr(pd, (void *)end->buffer, 2 * size, access | IBV_ACCESS_LOCAL_WRITE));
	NEED(end->qp = ibv_create_qp(pd, &init));
	attr.qp_access_flags = access;
	modify(end, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void connect_to(struct end *end, struct end *other)
{
	struct ibv_qp_attr attr = {
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = other->qp->qp_num,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 1}},
	};
	int to_rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, to_rts = IBV_QP_SQ_PSN;

	if (op->type == IBV_QPT_RC) {
		to_rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		to_rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	modify(end, &attr, IBV_QPS_RTR, to_rtr);
	modify(end, &attr, IBV_QPS_RTS, to_rts);
}

static void post_receives(struct end *end, int count)
{
	struct ibv_sge sge = {(uintptr_t)end->buffer + size, size, end->mr->lkey};
	struct ibv_recv_wr list[BATCH] = {}, *bad;
	int n;

	for (; count; count -= n) {
		n = count < BATCH ? count : BATCH;
		for (int i = 0; i < n; i++)
			list[i] = (struct ibv_recv_wr){
				.next = i + 1 < n ? &list[i + 1] : NULL, .sg_list = &sge, .num_sge = 1};
		errno = ibv_post_recv(end->qp, list, &bad);
		NEED(errno == 0);
	}
}

/* `count` messages in one call. Who asks waits for each; of the others some complete, which gives places back. */
static void post(struct end *from, struct end *to, int count)
{
	struct ibv_sge sge = {(uintptr_t)from->buffer, size, from->mr->lkey};
	uint64_t target = (uintptr_t)to->buffer + size;
	struct ibv_send_wr list[BATCH] = {}, *bad;

	for (int i = 0; i < count; i++) {
		struct ibv_send_wr *wr = &list[i];

		*wr = (struct ibv_send_wr){.next = i + 1 < count ? wr + 1 : NULL, .sg_list = &sge, .num_sge = 1,
					   .opcode = op->code};
		if (asks() || ++from->unsignaled >= SIGNAL_EVERY) {
			wr->send_flags |= IBV_SEND_SIGNALED;
			from->unsignaled = 0;
			signaled++;
		}
		if (size <= INLINE && !asks())
			wr->send_flags |= IBV_SEND_INLINE;
		if (is_atomic()) {
			wr->wr.atomic.remote_addr = target;
			wr->wr.atomic.rkey = to->mr->rkey;
		} else {
			wr->wr.rdma.remote_addr = target;
			wr->wr.rdma.rkey = to->mr->rkey;
		}
	}
	errno = ibv_post_send(from->qp, list, &bad);
	NEED(errno == 0);
	posted += count;
}

/* Looks once at the completion queue. A look that finds nothing lets Weft's own thread run: callgrind gives one thread
 * the machine at a time, and looks in vain would be counted. */
static void look(void)
{
	struct ibv_wc list[BATCH];
	int n = ibv_poll_cq(cq, BATCH, list);

	NEED(n >= 0);
	if (n == 0)
		sched_yield();
	for (int i = 0; i < n; i++) {
		if (list[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "completion: %s\n", ibv_wc_status_str(list[i].status));
			exit(1);
		}
		if (list[i].opcode & IBV_WC_RECV)
			received++;
		else
			completed++;
	}
}

/* Whether all that has been posted is where it should be, and the sender knows of what it asked to know. */
static int arrived(struct end *to, char mark)
{
	if (completed < signaled)
		return 0;
	if (asks())
		return 1;
	return takes_receive() ? received == posted : to->buffer[2 * size - 1] == mark;
}

/* Rounds of `messages` in posts of `list`; the next one begins when the last message has arrived. */
static void rounds(struct end ends[2], long count, int messages, int list)
{
	for (long i = 0; posted < count; i++) {
		int back = messages == 1 && !asks() && i % 2;
		struct end *from = &ends[back], *to = &ends[!back];
		char mark = 1 + i % 100;

		from->buffer[size - 1] = mark;
		for (int n = 0; n < messages; n += list)
			post(from, to, list);
		while (!arrived(to, mark))
			look();
		if (takes_receive())
			post_receives(to, messages);
	}
}

static int usage(const char *name)
{
	fprintf(stderr, "usage: %s latency OP SIZE COUNT | stream OP SIZE COUNT LIST\n", name);
	return 2;
}

int main(int argc, char **argv)
{
	struct end ends[2] = {};
	int streams = argc == 6 && !strcmp(argv[1], "stream"), latency = argc == 5 && !strcmp(argv[1], "latency");
	int list = streams ? atoi(argv[5]) : 1;
	long count = 0;

	if (streams || latency) {
		for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
			if (!strcmp(ops[i].name, argv[2]))
				op = &ops[i];
		size = strtoul(argv[3], NULL, 10);
		count = atol(argv[4]);
	}
	if (!op || !size || count <= 0 || list < 1 || list > BATCH || ROUND % list)
		return usage(argv[0]);
	open_device();
	create(&ends[0]);
	create(&ends[1]);
	connect_to(&ends[0], &ends[1]);
	connect_to(&ends[1], &ends[0]);
	for (int i = 0; takes_receive() && i < 2; i++)
		post_receives(&ends[i], RECEIVES);
	rounds(ends, count, streams ? ROUND : 1, list);
	return 0;
}
