/* Extended completion queues: ibv_start_poll. */
#include "env.h"

enum {
	ALL_WC = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID |
		 IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_DLID_PATH_BITS,
};

static struct ibv_cq_ex *cq_of(uint64_t wc, uint32_t cqe)
{
	struct ibv_cq_init_attr_ex init = {.cqe = cqe, .cq_context = &env, .wc_flags = wc};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(env.ctx, &init);

	if (!cq)
		absent_or_wrong("ibv_create_cq_ex");
	return cq;
}

CASE("cq-ex.fields")
{
	struct ibv_cq_ex *cq = cq_of(IBV_WC_STANDARD_FLAGS, 10);

	CHECK(cq->context == env.ctx && cq->cq_context == &env);
	CHECK(cq->cqe >= 10);
	CHECK((void *)ibv_cq_ex_to_cq(cq) == (void *)cq);
	EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

CASE("cq-ex.start-on-empty")
{
	struct ibv_cq_ex *cq = cq_of(IBV_WC_STANDARD_FLAGS, 10);
	struct ibv_poll_cq_attr attr = {};

	EQ(ibv_start_poll(cq, &attr), ENOENT);
	EQ(ibv_start_poll(cq, &attr), ENOENT);
	EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

CASE("cq-ex.unknown-poll-attribute-is-refused")
{
	struct ibv_cq_ex *cq = cq_of(IBV_WC_STANDARD_FLAGS, 10);
	struct ibv_poll_cq_attr attr = {.comp_mask = 1};

	CHECK(ibv_start_poll(cq, &attr) != 0);
	EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

CASE("cq-ex.unknown-flags-are-refused")
{
	struct ibv_cq_init_attr_ex init = {.cqe = 10, .wc_flags = 1ull << 60};

	errno = 0;
	CHECK(ibv_create_cq_ex(env.ctx, &init) == NULL);
	CHECK(errno == EINVAL || says_unsupported(errno));
}

CASE("cq-ex.unknown-mask-is-refused")
{
	struct ibv_cq_init_attr_ex init = {.cqe = 10, .wc_flags = IBV_WC_STANDARD_FLAGS, .comp_mask = 1u << 30};

	errno = 0;
	CHECK(ibv_create_cq_ex(env.ctx, &init) == NULL);
	CHECK(errno == EINVAL || says_unsupported(errno));
}

CASE("cq-ex.of-none-is-invalid")
{
	struct ibv_cq_init_attr_ex init = {.cqe = 0, .wc_flags = IBV_WC_STANDARD_FLAGS};

	errno = 0;
	CHECK(ibv_create_cq_ex(env.ctx, &init) == NULL);
	CHECK(errno == EINVAL || says_unsupported(errno));
}

static struct ibv_cq_ex *rcq(struct pair *p, uint64_t wc)
{
	pair_up(p, (struct wish){.cq_ex = true, .wc = wc});
	return (struct ibv_cq_ex *)(void *)p->b.rcq;
}

static bool start(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = {};
	double end = deadline();
	int error;

	while ((error = ibv_start_poll(cq, &attr)) == ENOENT && now() < end)
		;
	return CHECKF(error == 0, "ibv_start_poll: %s", strerror(error));
}

CASE("cq-ex.every-field-of-a-receive")
{
	struct pair p;
	struct ibv_cq_ex *cq = rcq(&p, ALL_WC);

	NEED(post_recv(&p.b, 0x1234567812345678, 0, 100) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 33) == 0);
	NEED(start(cq));
	EQ(cq->wr_id, 0x1234567812345678);
	EQ(cq->status, IBV_WC_SUCCESS);
	EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
	EQ(ibv_wc_read_vendor_err(cq), 0);
	EQ(ibv_wc_read_byte_len(cq), 33);
	EQ(ibv_wc_read_qp_num(cq), p.b.qp->qp_num);
	EQ(ibv_wc_read_wc_flags(cq) & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV), 0);
	(void)ibv_wc_read_src_qp(cq);
	(void)ibv_wc_read_slid(cq);
	(void)ibv_wc_read_sl(cq);
	(void)ibv_wc_read_dlid_path_bits(cq);
	EQ(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	pair_down(&p);
}

CASE("cq-ex.several-in-a-batch")
{
	struct pair p;
	struct ibv_cq_ex *cq = rcq(&p, IBV_WC_STANDARD_FLAGS);

	for (uint64_t i = 0; i < 10; i++) {
		NEED(post_recv(&p.b, i, 0, 64) == 0);
		NEED(send_of(&p.a, i, IBV_SEND_SIGNALED, 0, (uint32_t)i + 1) == 0);
	}
	uint64_t next = 0;
	double end = deadline();
	while (next < 10 && now() < end) {
		NEED(start(cq));
		do {
			EQ(cq->wr_id, next);
			EQ(ibv_wc_read_byte_len(cq), next + 1);
			next++;
		} while (ibv_next_poll(cq) == 0);
		ibv_end_poll(cq);
	}
	EQ(next, 10);
	pair_down(&p);
}

CASE("cq-ex.batches-and-plain-polling-in-turn")
{
	struct pair p;
	struct ibv_cq_ex *cq = rcq(&p, IBV_WC_STANDARD_FLAGS);

	for (uint64_t i = 0; i < 6; i++) {
		NEED(post_recv(&p.b, i, 0, 64) == 0);
		NEED(send_of(&p.a, i, IBV_SEND_SIGNALED, 0, 8) == 0);
		if (i & 1) {
			WORKS(p.b.rcq, i);
			continue;
		}
		NEED(start(cq));
		EQ(cq->wr_id, i);
		ibv_end_poll(cq);
	}
	pair_down(&p);
}

CASE("cq-ex.status-of-a-flush")
{
	struct pair p;
	struct ibv_cq_ex *cq = rcq(&p, IBV_WC_STANDARD_FLAGS);

	NEED(post_recv(&p.b, 5, 0, 64) == 0);
	NEED(to_state(p.b.qp, IBV_QPS_ERR) == 0);
	NEED(start(cq));
	EQ(cq->wr_id, 5);
	EQ(cq->status, IBV_WC_WR_FLUSH_ERR);
	ibv_end_poll(cq);
	pair_down(&p);
}

CASE("cq-ex.immediate")
{
	need_immediate();
	struct pair p;
	struct ibv_cq_ex *cq = rcq(&p, IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_IMM);

	NEED(post_recv(&p.b, 5, 0, 64) == 0);
	NEED(post(&p.a, 2, IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED, 0, 8, NULL, 0) == 0);
	NEED(start(cq));
	EQ(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
	EQ(ntohl(ibv_wc_read_imm_data(cq)), 0x01020304);
	ibv_end_poll(cq);
	pair_down(&p);
}

CASE("cq-ex.events")
{
	struct pair p;
	struct ibv_cq_ex *cq = rcq(&p, IBV_WC_STANDARD_FLAGS);

	EQ(ibv_req_notify_cq(p.b.rcq, 0), 0);
	NEED(post_recv(&p.b, 5, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	one_event(&p.b, p.b.rcq);
	NEED(start(cq));
	EQ(cq->wr_id, 5);
	ibv_end_poll(cq);
	pair_down(&p);
}

CASE("cq-ex.timestamps-or-refused")
{
	struct ibv_cq_init_attr_ex init = {.cqe = 10, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(env.ctx, &init);

	if (!cq) {
		EQ(env.devx.completion_timestamp_mask, 0);
		CHECK(says_unsupported(errno) || errno == EINVAL);
		return;
	}
	CHECK(env.devx.completion_timestamp_mask);
	EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

CASE("cq-ex.wall-clock-timestamps-grow")
{
	struct pair p;
	struct ibv_cq_ex *cq = rcq(&p, IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
	uint64_t last = 0;

	for (uint64_t i = 0; i < 5; i++) {
		NEED(post_recv(&p.b, i, 0, 64) == 0);
		NEED(send_of(&p.a, i, IBV_SEND_SIGNALED, 0, 8) == 0);
		NEED(start(cq));
		uint64_t at = ibv_wc_read_completion_wallclock_ns(cq);
		CHECK(at >= last && at > 0);
		last = at;
		ibv_end_poll(cq);
	}
	pair_down(&p);
}

CASE("cq-ex.single-threaded-flag-is-taken-or-refused")
{
	struct ibv_cq_init_attr_ex init = {.cqe = 10, .wc_flags = IBV_WC_STANDARD_FLAGS,
					   .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					   .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(env.ctx, &init);

	if (!cq) {
		CHECK(says_unsupported(errno) || errno == EINVAL);
		return;
	}
	CHECK(cq->cqe >= 10);
	EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}
