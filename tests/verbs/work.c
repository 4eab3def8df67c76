/* Posting and reaping. */
#include "env.h"

struct ibv_sge sge(struct side *s, size_t at, uint32_t length)
{
	return (struct ibv_sge){(uintptr_t)s->buf + at, length, s->mr->lkey};
}

int post_recv(struct side *s, uint64_t id, size_t at, uint32_t length)
{
	struct ibv_sge list = sge(s, at, length);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &list, .num_sge = length ? 1 : 0}, *bad;

	return s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad);
}

int post(struct side *s, uint64_t id, enum ibv_wr_opcode op, int flags, size_t at, uint32_t length,
	 const struct side *peer, size_t peer_at)
{
	struct ibv_sge list = sge(s, at, length);
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &list,
				 .num_sge = length ? 1 : 0,
				 .opcode = op,
				 .send_flags = (unsigned)flags,
				 .imm_data = htonl(0x01020304)},
			   *bad;

	if (peer) {
		wr.wr.rdma.remote_addr = (uintptr_t)peer->buf + peer_at;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	return ibv_post_send(s->qp, &wr, &bad);
}

int send_of(struct side *s, uint64_t id, int flags, size_t at, uint32_t length)
{
	return post(s, id, IBV_WR_SEND, flags, at, length, NULL, 0);
}

int post_atomic(struct side *s, uint64_t id, enum ibv_wr_opcode op, size_t at, const struct side *peer, size_t peer_at,
		uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge list = sge(s, at, 8);
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &list,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.atomic = {.remote_addr = (uintptr_t)peer->buf + peer_at,
					       .rkey = peer->mr->rkey,
					       .compare_add = compare_add,
					       .swap = swap}},
			   *bad;

	return ibv_post_send(s->qp, &wr, &bad);
}

bool reap(struct ibv_cq *cq, struct ibv_wc *wc)
{
	double end = deadline();

	do {
		if (ibv_poll_cq(cq, 1, wc) == 1)
			return true;
	} while (now() < end);
	return false;
}

bool quiet(struct ibv_cq *cq)
{
	double end = now() + QUIET / 1e3;
	struct ibv_wc wc;

	/* Often enough that what is there is seen, though the machine stood still for the whole time. */
	for (int polls = 0; polls < 100 || now() < end; polls++)
		if (ibv_poll_cq(cq, 1, &wc))
			return false;
	return true;
}

void fill(uint8_t *at, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		at[i] = (uint8_t)(seed + i * 7 + (i >> 8) * 13);
}

bool holds(const uint8_t *at, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		if (at[i] != (uint8_t)(seed + i * 7 + (i >> 8) * 13))
			return CHECKF(false, "octet %zu of %zu is %#x", i, length, at[i]);
	return true;
}

bool untouched_but(const struct side *s, size_t length, size_t from, size_t but)
{
	for (size_t i = 0; i < length; i++)
		if (s->buf[i] && (i < from || i >= from + but))
			return CHECKF(false, "octet %zu was written", i);
	return true;
}

enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {};
	struct ibv_qp_init_attr init;

	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
	return attr.qp_state;
}

bool becomes(struct ibv_qp *qp, enum ibv_qp_state state)
{
	double end = deadline();

	while (state_of(qp) != state && now() < end)
		sleep_ms(1);
	return state_of(qp) == state;
}

int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static void *wait_and_acknowledge(void *of)
{
	struct later *later = of;

	sleep_ms(150);
	__atomic_store_n(&later->given, true, __ATOMIC_SEQ_CST);
	later->acknowledge(later->of);
	return NULL;
}

void acknowledge_later(struct later *later)
{
	NEED(pthread_create(&later->thread, NULL, wait_and_acknowledge, later) == 0);
}

bool was_waited_for(struct later *later)
{
	bool given = __atomic_load_n(&later->given, __ATOMIC_SEQ_CST);

	pthread_join(later->thread, NULL);
	return given;
}

void take_event(struct side *s, struct ibv_cq *cq)
{
	struct ibv_cq *got = NULL;
	void *context = NULL;

	EQ(ibv_get_cq_event(s->channel, &got, &context), 0);
	CHECK(got == cq && context == s);
	ibv_ack_cq_events(cq, 1);
}

void one_event(struct side *s, struct ibv_cq *cq)
{
	if (!CHECKF(comes(s->channel->fd), "no completion event in time"))
		case_end();
	take_event(s, cq);
}
