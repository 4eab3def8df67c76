/* Messages as RDMA Sends: one completion queue, one queue pair for each connection. */
#include "crowd.h"
#include "queue_pairs.h"

#include <errno.h>

enum { AT_ONCE = 32, SIGNAL_EVERY = 8 };
#define IS_SEND UINT64_MAX

struct crowd crowd;

static size_t place(uint32_t connection, uint32_t number)
{
	return ((size_t)connection * options.window + number % options.window) * options.size;
}

/* --- objects */

void objects_make(struct ibv_context *context)
{
	size_t octets = (size_t)options.count * options.window * options.size;
	int cqe = (int)(options.count * (options.window * 3 + SIGNAL_EVERY) + 64);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	if (crowd.pd)
		return;
	MUST((crowd.pd = ibv_alloc_pd(context)), "ibv_alloc_pd");
	MUST((crowd.channel = ibv_create_comp_channel(context)), "ibv_create_comp_channel");
	MUST((crowd.cq = ibv_create_cq(context, cqe, NULL, crowd.channel, 0)), "ibv_create_cq(%d)", cqe);
	crowd.qps = room(options.count * sizeof(*crowd.qps));
	crowd.posted = room(options.count * sizeof(*crowd.posted));
	crowd.memory = room(3 * octets);
	crowd.incoming = crowd.memory;
	crowd.outgoing = crowd.memory + octets;
	crowd.blocks = crowd.memory + 2 * octets;
	MUST((crowd.mr = ibv_reg_mr(crowd.pd, crowd.memory, 3 * octets, access)), "ibv_reg_mr");
}

struct ibv_qp_init_attr qp_attributes(void)
{
	return (struct ibv_qp_init_attr){
		.send_cq = crowd.cq,
		.recv_cq = crowd.cq,
		.cap = {.max_send_wr = 2 * options.window + 2 * SIGNAL_EVERY,
			.max_recv_wr = options.window,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
}

static void post_receive(uint32_t connection, uint32_t slot)
{
	struct ibv_sge sge = {(uintptr_t)(crowd.incoming + place(connection, slot)), options.size, crowd.mr->lkey};
	struct ibv_recv_wr wr = {
		.wr_id = (uint64_t)connection * options.window + slot, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;
	int error = ibv_post_recv(crowd.qps[connection], &wr, &bad);

	MUST(error == 0, "ibv_post_recv on connection %u: %s", connection, strerror(error));
}

void qp_ready(uint32_t connection, struct ibv_qp *qp)
{
	crowd.qps[connection] = qp;
	for (uint32_t slot = 0; slot < options.window; slot++)
		post_receive(connection, slot);
}

/* --- messages */

static uint8_t *buffer(uint32_t connection, uint32_t number)
{
	return crowd.outgoing + place(connection, number);
}

static void post(uint32_t connection, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->wr_id = IS_SEND;
	if (++crowd.posted[connection] % SIGNAL_EVERY == 0)
		wr->send_flags |= IBV_SEND_SIGNALED;
	int error = ibv_post_send(crowd.qps[connection], wr, &bad);
	MUST(error == 0, "ibv_post_send on connection %u: %s", connection, strerror(error));
}

/* The receive of a message that was looked at goes back, before anything is sent that brings the next one. */
static void give_back(void)
{
	if (!crowd.looked_at)
		return;
	uint64_t place = crowd.looked_at - 1;
	crowd.looked_at = 0;
	post_receive((uint32_t)(place / options.window), (uint32_t)(place % options.window));
}

/* What the server checks when the message behind it has come. */
static void write_block(uint32_t connection, const struct header *h)
{
	uint8_t *block = crowd.blocks + place(connection, h->number);
	struct ibv_sge sge = {(uintptr_t)block, h->size, crowd.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};

	block_fill(block, h);
	wr.wr.rdma.remote_addr = crowd.there.blocks + place(connection, h->number);
	wr.wr.rdma.rkey = crowd.there.rkey;
	post(connection, &wr);
}

static void send_message(uint32_t connection, const struct header *h)
{
	struct ibv_sge sge = {(uintptr_t)buffer(connection, h->number), h->size, crowd.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};

	give_back();
	if (h->flags & WITH_WRITE && !options.server)
		write_block(connection, h);
	post(connection, &wr);
}

static void deliver(const struct ibv_wc *wc, arrival *arrived)
{
	uint32_t connection = (uint32_t)(wc->wr_id / options.window), slot = (uint32_t)(wc->wr_id % options.window);
	const uint8_t *at = crowd.incoming + place(connection, slot);
	struct header h;

	memcpy(&h, at, sizeof(h));
	MUST(h.size == wc->byte_len, "connection %u: %u octets of %u", connection, wc->byte_len, h.size);
	if (options.server && h.flags & WITH_WRITE)
		MUST(block_right(crowd.blocks + place(connection, h.number), &h),
		     "connection %u: what was written before message %u is wrong", connection, h.number);
	crowd.looked_at = wc->wr_id + 1;
	arrived(connection, at);
	give_back();
}

static bool poll_once(arrival *arrived)
{
	struct ibv_wc wc[AT_ONCE];
	int got = ibv_poll_cq(crowd.cq, AT_ONCE, wc);

	MUST(got >= 0, "ibv_poll_cq");
	for (int i = 0; i < got; i++) {
		/* A client that has what it wanted leaves; its connections end one by one. */
		if (wc[i].status == IBV_WC_WR_FLUSH_ERR && options.server)
			continue;
		MUST(wc[i].status == IBV_WC_SUCCESS, "work request %llx: %s", (unsigned long long)wc[i].wr_id,
		     ibv_wc_status_str(wc[i].status));
		if (wc[i].wr_id != IS_SEND)
			deliver(&wc[i], arrived);
	}
	return got > 0;
}

static void receive(bool asleep, arrival *arrived)
{
	struct ibv_cq *cq;
	void *context;

	if (poll_once(arrived) || !asleep)
		return;
	MUST(ibv_req_notify_cq(crowd.cq, 0) == 0, "ibv_req_notify_cq");
	if (poll_once(arrived))
		return;
	MUST(ibv_get_cq_event(crowd.channel, &cq, &context) == 0, "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
}

static void be_there(void)
{
	options.by == BY_GID ? gid_listen() : cm_listen();
}

static void take_all(void)
{
	options.by == BY_GID ? gid_accept() : cm_accept();
}

static void prepare(void)
{
	options.by == BY_GID ? gid_prepare() : cm_prepare();
}

static void connect_all(uint64_t *each, uint64_t *all)
{
	options.by == BY_GID ? gid_connect(each, all) : cm_connect(each, all);
}

const struct carrier queue_pairs = {
	.listen = be_there,
	.accept = take_all,
	.prepare = prepare,
	.connect = connect_all,
	.buffer = buffer,
	.send = send_message,
	.receive = receive,
};
