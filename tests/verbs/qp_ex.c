/* Extended queue pairs: ibv_wr_*. */
#include "env.h"

enum {
	RC_OPS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
};

static struct ibv_qp_ex *up(struct pair *p, uint64_t ops)
{
	pair_up(p, (struct wish){.ops = ops, .inline_data = 64});
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(p->a.qp);
	NEED(qp);
	CHECK(&qp->qp_base == p->a.qp);
	return qp;
}

CASE("qp-ex.made-without-operations-has-no-extended-face-or-one")
{
	struct ibv_qp *qp = a_qp(a_pd(), a_cq(8));
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	CHECK(!ex || &ex->qp_base == qp);
}

CASE("qp-ex.of-a-domain-only-is-a-plain-one")
{
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq,
					   .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
					   .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = a_pd()};
	struct ibv_qp *qp = ibv_create_qp_ex(env.ctx, &init);

	NEED(qp);
	CHECK(qp->pd == init.pd);
	CHECK(init.cap.max_send_wr >= 4);
	EQ(ibv_destroy_qp(qp), 0);
}

CASE("qp-ex.without-a-domain-is-refused")
{
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq,
					   .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
					   .qp_type = IBV_QPT_RC};

	CHECK(ibv_create_qp_ex(env.ctx, &init) == NULL);
	CHECK(errno);
}

CASE("qp-ex.unknown-mask-is-refused")
{
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq,
					   .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
					   .qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD | 1 << 30, .pd = a_pd()};

	errno = 0;
	CHECK(ibv_create_qp_ex(env.ctx, &init) == NULL);
	CHECK(errno == EINVAL || says_unsupported(errno));
}

CASE("qp-ex.unknown-operations-are-refused")
{
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq,
					   .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
					   .qp_type = IBV_QPT_RC,
					   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					   .pd = a_pd(), .send_ops_flags = 1ull << 60};

	errno = 0;
	CHECK(ibv_create_qp_ex(env.ctx, &init) == NULL);
	CHECK(errno == EINVAL || says_unsupported(errno));
}

CASE("qp-ex.segmentation-on-rc-is-refused")
{
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp_init_attr_ex init = {.send_cq = cq, .recv_cq = cq,
					   .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
					   .qp_type = IBV_QPT_RC,
					   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					   .pd = a_pd(), .send_ops_flags = IBV_QP_EX_WITH_TSO};

	errno = 0;
	CHECK(ibv_create_qp_ex(env.ctx, &init) == NULL);
	CHECK(errno == EINVAL || says_unsupported(errno));
}

CASE("wr.send")
{
	struct pair p;
	struct ibv_qp_ex *qp = up(&p, RC_OPS);

	fill(p.a.buf, 64, 2);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	ibv_wr_start(qp);
	qp->wr_id = 2;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 64);
	EQ(ibv_wr_complete(qp), 0);
	EQ(WORKS(p.a.scq, 2).opcode, IBV_WC_SEND);
	EQ(WORKS(p.b.rcq, 1).byte_len, 64);
	CHECK(holds(p.b.buf, 64, 2));
	pair_down(&p);
}

CASE("wr.write-and-read")
{
	struct pair p;
	struct ibv_qp_ex *qp = up(&p, RC_OPS);

	fill(p.a.buf, 1000, 2);
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, p.b.mr->rkey, (uintptr_t)p.b.buf + 10);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 1000);
	qp->wr_id = 2;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(qp, p.b.mr->rkey, (uintptr_t)p.b.buf + 10);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf + 4096, 1000);
	EQ(ibv_wr_complete(qp), 0);
	struct ibv_wc wc = WORKS(p.a.scq, 2);
	EQ(wc.opcode, IBV_WC_RDMA_READ);
	EQ(wc.byte_len, 1000);
	CHECK(holds(p.a.buf + 4096, 1000, 2));
	pair_down(&p);
}

CASE("wr.list-of-elements")
{
	struct pair p;
	struct ibv_qp_ex *qp = up(&p, RC_OPS);

	fill(p.a.buf, 100, 2);
	NEED(post_recv(&p.b, 1, 0, 100) == 0);
	struct ibv_sge list[3] = {sge(&p.a, 0, 30), sge(&p.a, 30, 50), sge(&p.a, 80, 20)};
	ibv_wr_start(qp);
	qp->wr_id = 2;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge_list(qp, 3, list);
	EQ(ibv_wr_complete(qp), 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, 100);
	CHECK(holds(p.b.buf, 100, 2));
	pair_down(&p);
}

CASE("wr.inline-data")
{
	struct pair p;
	struct ibv_qp_ex *qp = up(&p, RC_OPS);
	char words[] = "taken at once";

	NEED(post_recv(&p.b, 1, 0, 100) == 0);
	ibv_wr_start(qp);
	qp->wr_id = 2;
	qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, words, sizeof(words));
	memset(words, 0, sizeof(words));
	EQ(ibv_wr_complete(qp), 0);
	WORKS(p.b.rcq, 1);
	SAME(p.b.buf, "taken at once", 14);
	pair_down(&p);
}

CASE("wr.inline-data-in-parts")
{
	struct pair p;
	struct ibv_qp_ex *qp = up(&p, RC_OPS);
	char one[] = "one ", two[] = "two";
	struct ibv_data_buf parts[2] = {{one, 4}, {two, 4}};

	NEED(post_recv(&p.b, 1, 0, 100) == 0);
	ibv_wr_start(qp);
	qp->wr_id = 2;
	qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	ibv_wr_send(qp);
	ibv_wr_set_inline_data_list(qp, 2, parts);
	EQ(ibv_wr_complete(qp), 0);
	WORKS(p.b.rcq, 1);
	SAME(p.b.buf, "one two", 8);
	pair_down(&p);
}

CASE("wr.aborted-leaves-nothing")
{
	struct pair p;
	struct ibv_qp_ex *qp = up(&p, RC_OPS);

	NEED(post_recv(&p.b, 1, 0, 100) == 0);
	ibv_wr_start(qp);
	qp->wr_id = 2;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 64);
	ibv_wr_abort(qp);
	CHECK(quiet(p.a.scq));
	CHECK(quiet(p.b.rcq));
	ibv_wr_start(qp);
	qp->wr_id = 3;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 64);
	EQ(ibv_wr_complete(qp), 0);
	WORKS(p.a.scq, 3);
	WORKS(p.b.rcq, 1);
	pair_down(&p);
}

CASE("wr.more-than-there-is-room-is-refused-as-a-whole")
{
	struct pair p;
	struct ibv_qp_ex *qp = up(&p, RC_OPS);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	NEED(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init) == 0);
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	for (uint32_t i = 0; i <= attr.cap.max_send_wr; i++) {
		qp->wr_id = i;
		ibv_wr_rdma_write(qp, p.b.mr->rkey, (uintptr_t)p.b.buf);
		ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 8);
	}
	EQ(ibv_wr_complete(qp), ENOMEM);
	CHECK(quiet(p.a.scq));
	pair_down(&p);
}

CASE("wr.plain-posts-work-beside-it")
{
	struct pair p;
	struct ibv_qp_ex *qp = up(&p, RC_OPS);

	for (uint64_t i = 0; i < 10; i++) {
		NEED(post_recv(&p.b, i, 0, 64) == 0);
		if (i & 1) {
			NEED(send_of(&p.a, i, IBV_SEND_SIGNALED, 0, 8) == 0);
			continue;
		}
		ibv_wr_start(qp);
		qp->wr_id = i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(qp);
		ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 8);
		NEED(ibv_wr_complete(qp) == 0);
	}
	for (uint64_t i = 0; i < 10; i++) {
		WORKS(p.a.scq, i);
		WORKS(p.b.rcq, i);
	}
	pair_down(&p);
}

CASE("wr.send-with-immediate")
{
	need_immediate();
	struct pair p;
	struct ibv_qp_ex *qp = up(&p, RC_OPS | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);

	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(post_recv(&p.b, 2, 0, 64) == 0);
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	qp->wr_id = 3;
	ibv_wr_send_imm(qp, htonl(7));
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 8);
	qp->wr_id = 4;
	ibv_wr_rdma_write_imm(qp, p.b.mr->rkey, (uintptr_t)p.b.buf, htonl(8));
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 8);
	EQ(ibv_wr_complete(qp), 0);
	EQ(ntohl(WORKS(p.b.rcq, 1).imm_data), 7);
	struct ibv_wc wc = WORKS(p.b.rcq, 2);
	EQ(ntohl(wc.imm_data), 8);
	EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	pair_down(&p);
}

CASE("wr.four-kinds-together-and-their-completions-one-by-one")
{
	need_immediate();
	struct pair p;
	struct ibv_poll_cq_attr attr = {};
	double end;
	int got;

	pair_up(&p, (struct wish){.ops = RC_OPS | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
				  .inline_data = 64, .cq_ex = true, .wc = IBV_WC_STANDARD_FLAGS});
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(p.a.qp);
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)(void *)p.a.scq;
	NEED(qp);
	uint64_t remote = (uintptr_t)p.b.buf;
	fill(p.a.buf, 100, 4);
	for (uint64_t i = 0; i < 3; i++)
		NEED(post_recv(&p.b, 20 + i, 4096 * (i + 1), 4096) == 0);
	struct ibv_sge list[2] = {sge(&p.a, 0, 30), sge(&p.a, 30, 70)};
	struct ibv_data_buf parts[2] = {{p.a.buf, 10}, {p.a.buf + 10, 20}};
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, p.b.mr->rkey, remote);
	ibv_wr_set_sge_list(qp, 2, list);
	qp->wr_id = 2;
	ibv_wr_send_imm(qp, htonl(99));
	ibv_wr_set_inline_data_list(qp, 2, parts);
	qp->wr_id = 3;
	qp->wr_flags = 0;
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, p.a.buf, 5);
	qp->wr_id = 4;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write_imm(qp, p.b.mr->rkey, remote + 200, htonl(77));
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 100);
	EQ(ibv_wr_complete(qp), 0);
	for (uint64_t i = 0; i < 3; i++) {
		static const unsigned octets[] = {30, 5, 100}, flags[] = {IBV_WC_WITH_IMM, 0, IBV_WC_WITH_IMM};
		struct ibv_wc wc = WORKS(p.b.rcq, 20 + i);
		EQ(wc.byte_len, octets[i]);
		EQ(wc.wc_flags & IBV_WC_WITH_IMM, flags[i]);
	}
	CHECK(holds(p.b.buf, 100, 4));
	CHECK(holds(p.b.buf + 4096, 30, 4));
	CHECK(holds(p.b.buf + 200, 100, 4));

	/* The last of them may come a little later than the others. */
	static const struct {
		uint64_t id;
		enum ibv_wc_opcode opcode;
	} wanted[] = {{1, IBV_WC_RDMA_WRITE}, {2, IBV_WC_SEND}, {4, IBV_WC_RDMA_WRITE}};
	for (int i = 0; i < 3; ibv_end_poll(cq)) {
		end = deadline();
		while ((got = ibv_start_poll(cq, &attr)) == ENOENT && now() < end)
			;
		NEED(got == 0);
		do {
			EQ(cq->wr_id, wanted[i].id);
			EQ(cq->status, IBV_WC_SUCCESS);
			EQ(ibv_wc_read_opcode(cq), wanted[i].opcode);
			EQ(ibv_wc_read_qp_num(cq), p.a.qp->qp_num);
			EQ(ibv_wc_read_vendor_err(cq), 0);
			EQ(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM, 0);
		} while (++i < 3 && ibv_next_poll(cq) == 0);
	}
	EQ(ibv_start_poll(cq, &attr), ENOENT);
	pair_down(&p);
}

CASE("wr.one-that-is-wrong-refuses-the-whole")
{
	struct pair p;
	struct ibv_qp_ex *qp = up(&p, RC_OPS);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	NEED(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init) == 0);
	ibv_wr_start(qp);
	qp->wr_id = 6;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, p.b.mr->rkey, (uintptr_t)p.b.buf);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 8);
	ibv_wr_rdma_write(qp, p.b.mr->rkey, (uintptr_t)p.b.buf);
	ibv_wr_set_inline_data(qp, p.a.buf, attr.cap.max_inline_data + 1);
	int error = ibv_wr_complete(qp);
	CHECKF(error == EINVAL || (!env.weft && error == ENOMEM), "%s", strerror(error));
	CHECK(quiet(p.a.scq));
	pair_down(&p);
}

CASE("wr.atomics")
{
	need_atomics();
	struct pair p;
	struct ibv_qp_ex *qp = up(&p, RC_OPS | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP);
	uint64_t *there = (uint64_t *)(void *)p.b.buf, *here = (uint64_t *)(void *)p.a.buf;

	*there = 5;
	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	qp->wr_id = 1;
	ibv_wr_atomic_fetch_add(qp, p.b.mr->rkey, (uintptr_t)there, 2);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)here, 8);
	qp->wr_id = 2;
	ibv_wr_atomic_cmp_swp(qp, p.b.mr->rkey, (uintptr_t)there, 7, 100);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)(here + 1), 8);
	EQ(ibv_wr_complete(qp), 0);
	WORKS(p.a.scq, 1);
	WORKS(p.a.scq, 2);
	EQ(here[0], 5);
	EQ(here[1], 7);
	EQ(*there, 100);
	pair_down(&p);
}

CASE("wr.bind-and-invalidate-locally")
{
	need_windows(2);
	struct pair p;
	struct ibv_qp_ex *qp =
		up(&p, RC_OPS | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV);
	struct ibv_mw *mw = ibv_alloc_mw(p.a.pd, IBV_MW_TYPE_2);
	struct ibv_mr *mr = ibv_reg_mr(p.a.pd, p.a.buf, BUF, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	NEED(mw && mr);
	struct ibv_mw_bind_info info = {mr, (uintptr_t)p.a.buf, 4096, IBV_ACCESS_REMOTE_READ};
	uint32_t key = ibv_inc_rkey(mw->rkey);

	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	qp->wr_id = 1;
	ibv_wr_bind_mw(qp, mw, key, &info);
	qp->wr_id = 2;
	ibv_wr_local_inv(qp, key);
	EQ(ibv_wr_complete(qp), 0);
	EQ(WORKS(p.a.scq, 1).opcode, IBV_WC_BIND_MW);
	EQ(WORKS(p.a.scq, 2).opcode, IBV_WC_LOCAL_INV);
	EQ(ibv_dealloc_mw(mw), 0);
	EQ(ibv_dereg_mr(mr), 0);
	pair_down(&p);
}
