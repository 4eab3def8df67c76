/* Queue pairs: what they are made with, and reading it back. */
#include "env.h"

static struct ibv_qp_init_attr plain(struct ibv_cq *cq)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
}

CASE("qp.fields")
{
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *send = a_cq(8), *recv = a_cq(8);
	struct ibv_qp_init_attr init = plain(send);
	init.recv_cq = recv;
	init.qp_context = &env;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	NEED(qp);
	CHECK(qp->context == env.ctx && qp->pd == pd && qp->qp_context == &env);
	CHECK(qp->send_cq == send && qp->recv_cq == recv && qp->srq == NULL);
	EQ(qp->qp_type, IBV_QPT_RC);
	EQ(qp->state, IBV_QPS_RESET);
	CHECK(qp->qp_num < 1 << 24);
	EQ(ibv_destroy_qp(qp), 0);
}

CASE("qp.sizes-are-given-back-and-are-enough")
{
	struct ibv_qp_init_attr init = plain(a_cq(8));
	init.cap = (struct ibv_qp_cap){.max_send_wr = 5, .max_recv_wr = 7, .max_send_sge = 2, .max_recv_sge = 1};
	struct ibv_qp *qp = ibv_create_qp(a_pd(), &init);

	NEED(qp);
	CHECK(init.cap.max_send_wr >= 5 && init.cap.max_recv_wr >= 7);
	CHECK(init.cap.max_send_sge >= 2 && init.cap.max_recv_sge >= 1);
	EQ(ibv_destroy_qp(qp), 0);
}

CASE("qp.with-objects-of-another-context-is-refused")
{
	struct ibv_context *other = ibv_open_device(env.ctx->device);
	NEED(other);
	struct ibv_cq *mine = a_cq(8), *theirs = ibv_create_cq(other, 8, NULL, NULL, 0);
	NEED(theirs);
	struct ibv_qp_init_attr init = plain(mine);

	init.send_cq = theirs;
	NONE(ibv_create_qp(a_pd(), &init), EINVAL);
	init = plain(mine);
	init.recv_cq = theirs;
	NONE(ibv_create_qp(a_pd(), &init), EINVAL);
	EQ(ibv_destroy_cq(theirs), 0);
	EQ(ibv_close_device(other), 0);
}

CASE("qp.numbers-differ")
{
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp *qps[50];

	for (int i = 0; i < 50; i++) {
		qps[i] = a_qp(pd, cq);
		for (int j = 0; j < i; j++)
			CHECK(qps[i]->qp_num != qps[j]->qp_num);
	}
	for (int i = 0; i < 50; i++)
		EQ(ibv_destroy_qp(qps[i]), 0);
}

enum wrong { SEND_WR, RECV_WR, SEND_SGE, RECV_SGE, INLINE_DATA, NO_SEND_CQ, NO_RECV_CQ, NO_TYPE, WRONGS };
static const char *const wrongs[] = {"too-many-sends",		"too-many-receives", "too-many-send-elements",
				     "too-many-receive-elements", "too-much-inline-data", "no-send-queue",
				     "no-receive-queue",	"an-unknown-type"};

static void wrong_qp(long which)
{
	struct ibv_qp_init_attr init = plain(a_cq(8));

	switch ((enum wrong)which) {
	case SEND_WR: init.cap.max_send_wr = (uint32_t)env.dev.max_qp_wr + 1; break;
	case RECV_WR: init.cap.max_recv_wr = (uint32_t)env.dev.max_qp_wr + 1; break;
	case SEND_SGE: init.cap.max_send_sge = (uint32_t)env.dev.max_sge + 1; break;
	case RECV_SGE: init.cap.max_recv_sge = (uint32_t)env.dev.max_sge + 1; break;
	case INLINE_DATA: init.cap.max_inline_data = 1 << 20; break;
	case NO_SEND_CQ: init.send_cq = NULL; break;
	case NO_RECV_CQ: init.recv_cq = NULL; break;
	default: init.qp_type = (enum ibv_qp_type)77;
	}
	/* rdma-core's providers trust the pointers; only what stands in for the kernel can look. */
	errno = 0;
	struct ibv_qp *qp = ibv_create_qp(a_pd(), &init);
	CHECK(qp == NULL);
	CHECKF(errno == EINVAL || errno == ENOMEM || (which == NO_TYPE && says_unsupported(errno)), "errno %d (%s)",
	       errno, strerror(errno));
}

CASES
{
	for (long i = 0; i < WRONGS; i++)
		ADD(wrong_qp, i, "qp.refused-with-%s", wrongs[i]);
}

CASE("qp.destroyed-with-requests-in-it")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 10; i++)
		NEED(post_recv(&p.b, i, 0, 64) == 0);
	pair_down(&p);
}

/* --- reading back */

CASE("query.of-a-new-queue-pair")
{
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp_init_attr init = plain(cq), got;
	init.qp_context = &env;
	init.sq_sig_all = 1;
	struct ibv_qp *qp = ibv_create_qp(a_pd(), &init);
	struct ibv_qp_attr attr;

	NEED(qp);
	EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &got), 0);
	EQ(attr.qp_state, IBV_QPS_RESET);
	EQ(attr.cap.max_send_wr, init.cap.max_send_wr);
	EQ(attr.cap.max_recv_wr, init.cap.max_recv_wr);
	EQ(attr.cap.max_send_sge, init.cap.max_send_sge);
	EQ(attr.cap.max_inline_data, init.cap.max_inline_data);
	CHECK(got.qp_context == &env && got.send_cq == cq && got.recv_cq == cq && got.srq == NULL);
	EQ(got.qp_type, IBV_QPT_RC);
	EQ(got.sq_sig_all, 1);
	EQ(ibv_destroy_qp(qp), 0);
}

CASE("query.of-a-connected-one")
{
	struct pair p;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	pair_up(&p, (struct wish){});
	EQ(ibv_query_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE, &init), 0);
	EQ(attr.qp_state, IBV_QPS_RTS);
	EQ(attr.cur_qp_state, IBV_QPS_RTS);
	EQ(p.a.qp->state, IBV_QPS_RTS);
	pair_down(&p);
}

CASE("query.writes-the-state-into-the-object")
{
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));

	NEED(to_state(qp, IBV_QPS_ERR) == 0);
	EQ(state_of(qp), IBV_QPS_ERR);
	EQ(qp->state, IBV_QPS_ERR);
}
