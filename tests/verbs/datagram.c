/* Unreliable queue pairs: UD with address handles, and UC. */
#include "env.h"

enum { GRH = 40, QKEY = 0x11111111 };

/* A queue pair of this type, or the reason why there is none. */
static struct ibv_qp *qp_of(enum ibv_qp_type type, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2},
		.qp_type = type,
	};

	errno = 0;
	return ibv_create_qp(pd, &init);
}

/* --- types that a device may lack: they work, or they are refused with an errno that says so */

static void type(long type)
{
	struct ibv_qp *qp = qp_of((enum ibv_qp_type)type, a_pd(), a_cq(8));

	if (qp) {
		EQ(qp->qp_type, type);
		EQ(ibv_destroy_qp(qp), 0);
		return;
	}
	CHECKF(says_unsupported(errno) || errno == EINVAL || errno == EPERM, "errno %d (%s)", errno, strerror(errno));
}

CASES
{
	ADD(type, IBV_QPT_UC, "type.uc-is-made-or-refused");
	ADD(type, IBV_QPT_UD, "type.ud-is-made-or-refused");
	ADD(type, IBV_QPT_RAW_PACKET, "type.raw-packet-is-made-or-refused");
	ADD(type, IBV_QPT_XRC_SEND, "type.xrc-send-is-made-or-refused");
	ADD(type, IBV_QPT_DRIVER, "type.driver-is-made-or-refused");
}

static void absent_type(long type)
{
	need_iwarp();
	errno = 0;
	CHECK(qp_of((enum ibv_qp_type)type, a_pd(), a_cq(8)) == NULL);
	CHECKF(says_unsupported(errno) || errno == EINVAL, "errno %d (%s)", errno, strerror(errno));
}

CASES
{
	/* iWARP has RC only (RFC 5040, 5041). */
	ADD(absent_type, IBV_QPT_UC, "type.uc-is-not-of-iwarp");
	ADD(absent_type, IBV_QPT_UD, "type.ud-is-not-of-iwarp");
}

/* --- UD */

struct datagrams {
	struct side a, b;
	struct ibv_ah *ah; /* a's handle of b (and of itself: the same port) */
};

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = attr_init();
	struct end_point own = end_of(qp);

	attr.qkey = QKEY;
	NEED(ibv_modify_qp(qp, &attr, mask_init(IBV_QPT_UD)) == 0);
	attr.qp_state = IBV_QPS_RTR;
	NEED(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	attr = attr_rts(&own);
	NEED(ibv_modify_qp(qp, &attr, mask_rts(IBV_QPT_UD)) == 0);
}

static struct ibv_ah_attr own_address(void)
{
	return (struct ibv_ah_attr){.is_global = 1,
				    .grh = {.dgid = env.gid, .sgid_index = (uint8_t)env.gid_index, .hop_limit = 64},
				    .dlid = env.port.lid,
				    .port_num = PORT};
}

static void datagrams_up(struct datagrams *d)
{
	struct wish w = {.type = IBV_QPT_UD};
	struct ibv_ah_attr address = own_address();

	*d = (struct datagrams){};
	for (int i = 0; i < 2; i++) {
		struct side *s = i ? &d->b : &d->a;
		side_objects(s, &w, i);
		struct ibv_qp_init_attr init = init_of(s, &w);
		s->qp = ibv_create_qp(s->pd, &init);
		if (!s->qp && env.iwarp)
			SKIP("the device's transport is iWARP, which has no datagrams");
		if (!s->qp)
			absent_or_wrong("a queue pair of type UD");
		to_rts(s->qp);
	}
	NEED(d->ah = ibv_create_ah(d->a.pd, &address));
}

static int send_to(struct datagrams *d, uint64_t id, enum ibv_wr_opcode op, uint32_t length, uint32_t qkey)
{
	struct ibv_sge list = sge(&d->a, 0, length);
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &list, .num_sge = length ? 1 : 0, .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(9),
				 .wr.ud = {d->ah, d->b.qp->qp_num, qkey}}, *bad;

	return ibv_post_send(d->a.qp, &wr, &bad);
}

static void datagram_of(long length)
{
	struct datagrams d;

	datagrams_up(&d);
	if (length > 128 << env.port.active_mtu)
		SKIP("the port's MTU is %d", 128 << env.port.active_mtu);
	fill(d.a.buf, (size_t)length, 4);
	NEED(post_recv(&d.b, 1, 0, GRH + (uint32_t)length) == 0);
	NEED(send_to(&d, 2, IBV_WR_SEND, (uint32_t)length, QKEY) == 0);
	struct ibv_wc wc = WORKS(d.b.rcq, 1);
	EQ(wc.opcode, IBV_WC_RECV);
	EQ(wc.byte_len, GRH + length);
	EQ(wc.src_qp, d.a.qp->qp_num);
	EQ(wc.wc_flags & IBV_WC_GRH, IBV_WC_GRH);
	CHECK(holds(d.b.buf + GRH, (size_t)length, 4));
	WORKS(d.a.scq, 2);
}

CASES
{
	static const int sizes[] = {0, 1, 64, 256, 1024, 2048, 4096};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		ADD(datagram_of, sizes[i], "ud.send-of-%d", sizes[i]);
}

CASE("ud.immediate")
{
	struct datagrams d;

	datagrams_up(&d);
	NEED(post_recv(&d.b, 1, 0, 1000) == 0);
	NEED(send_to(&d, 2, IBV_WR_SEND_WITH_IMM, 8, QKEY) == 0);
	struct ibv_wc wc = WORKS(d.b.rcq, 1);
	EQ(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
	EQ(ntohl(wc.imm_data), 9);
}

CASE("ud.answered-by-a-handle-from-the-completion")
{
	struct datagrams d;

	datagrams_up(&d);
	NEED(post_recv(&d.b, 1, 0, 1000) == 0);
	NEED(post_recv(&d.a, 3, 8192, 1000) == 0);
	NEED(send_to(&d, 2, IBV_WR_SEND, 8, QKEY) == 0);
	struct ibv_wc wc = WORKS(d.b.rcq, 1);
	struct ibv_ah *back = ibv_create_ah_from_wc(d.b.pd, &wc, (struct ibv_grh *)(void *)d.b.buf, PORT);
	NEED(back);
	fill(d.b.buf + 4096, 8, 7);
	struct ibv_sge list = sge(&d.b, 4096, 8);
	struct ibv_send_wr wr = {.wr_id = 4, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED, .wr.ud = {back, wc.src_qp, QKEY}}, *bad;
	NEED(ibv_post_send(d.b.qp, &wr, &bad) == 0);
	WORKS(d.a.rcq, 3);
	CHECK(holds(d.a.buf + 8192 + GRH, 8, 7));
	EQ(ibv_destroy_ah(back), 0);
}

CASE("ud.grh-names-both-ends")
{
	struct datagrams d;

	datagrams_up(&d);
	NEED(post_recv(&d.b, 1, 0, 1000) == 0);
	NEED(send_to(&d, 2, IBV_WR_SEND, 8, QKEY) == 0);
	struct ibv_wc wc = WORKS(d.b.rcq, 1);
	struct ibv_ah_attr attr = {};
	EQ(ibv_init_ah_from_wc(d.b.ctx, PORT, &wc, (struct ibv_grh *)(void *)d.b.buf, &attr), 0);
	EQ(attr.is_global, 1);
	SAME(&attr.grh.dgid, &env.gid, sizeof(env.gid));
}

CASE("ud.wrong-queue-key-is-dropped")
{
	struct datagrams d;
	struct ibv_port_attr before, after;

	datagrams_up(&d);
	NEED(ibv_query_port(env.ctx, PORT, &before) == 0);
	NEED(post_recv(&d.b, 1, 0, 1000) == 0);
	NEED(send_to(&d, 2, IBV_WR_SEND, 8, QKEY + 1) == 0);
	WORKS(d.a.scq, 2);
	CHECK(quiet(d.b.rcq));
	NEED(send_to(&d, 3, IBV_WR_SEND, 8, QKEY) == 0);
	WORKS(d.b.rcq, 1);
	NEED(ibv_query_port(env.ctx, PORT, &after) == 0);
	EQ(after.qkey_viol_cntr, before.qkey_viol_cntr + 1);
}

CASE("ud.to-nobody-completes")
{
	struct datagrams d;

	datagrams_up(&d);
	struct ibv_sge list = sge(&d.a, 0, 8);
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED, .wr.ud = {d.ah, 0xfffffe, QKEY}}, *bad;
	NEED(ibv_post_send(d.a.qp, &wr, &bad) == 0);
	WORKS(d.a.scq, 2);
	EQ(state_of(d.a.qp), IBV_QPS_RTS);
}

CASE("ud.without-a-receive-is-dropped")
{
	struct datagrams d;

	datagrams_up(&d);
	NEED(send_to(&d, 2, IBV_WR_SEND, 8, QKEY) == 0);
	WORKS(d.a.scq, 2);
	/* Polling takes the datagram up, and there is nowhere to put it. */
	CHECK(quiet(d.b.rcq));
	NEED(post_recv(&d.b, 1, 0, 1000) == 0);
	CHECK(quiet(d.b.rcq));
	EQ(state_of(d.b.qp), IBV_QPS_RTS);
	NEED(send_to(&d, 3, IBV_WR_SEND, 8, QKEY) == 0);
	WORKS(d.b.rcq, 1);
}

CASE("ud.too-long-for-the-receive")
{
	struct datagrams d;

	datagrams_up(&d);
	d.b.buf[GRH + 8] = 0xee;
	NEED(post_recv(&d.b, 1, 0, GRH + 8) == 0);
	NEED(send_to(&d, 2, IBV_WR_SEND, 9, QKEY) == 0);
	struct ibv_wc wc = {};
	/* Dropped, or an error completion: devices differ; nothing is written past the receive. */
	for (double end = now() + QUIET / 1e3; now() < end && ibv_poll_cq(d.b.rcq, 1, &wc) == 0;)
		;
	CHECKF(wc.wr_id == 0 || wc.status == IBV_WC_LOC_LEN_ERR, "status %s",
	       ibv_wc_status_str(wc.status));
	EQ(d.b.buf[GRH + 8], 0xee);
}

CASE("ud.above-the-mtu-is-refused")
{
	struct datagrams d;

	datagrams_up(&d);
	int error = send_to(&d, 2, IBV_WR_SEND, (128u << env.port.active_mtu) + 1, QKEY);
	struct ibv_wc wc = {};
	if (!error) {
		NEED(reap(d.a.scq, &wc));
		CHECK(wc.status == IBV_WC_LOC_LEN_ERR || wc.status == IBV_WC_LOC_QP_OP_ERR);
	} else {
		EQ(error, EINVAL);
	}
}

static void not_for_datagrams(long op)
{
	struct datagrams d;

	datagrams_up(&d);
	int error = send_to(&d, 2, (enum ibv_wr_opcode)op, 8, QKEY);
	CHECKF(error == EINVAL || says_unsupported(error), "%s", strerror(error));
}

CASES
{
	ADD(not_for_datagrams, IBV_WR_RDMA_WRITE, "ud.write-is-refused");
	ADD(not_for_datagrams, IBV_WR_RDMA_READ, "ud.read-is-refused");
	ADD(not_for_datagrams, IBV_WR_ATOMIC_FETCH_AND_ADD, "ud.atomic-is-refused");
	ADD(not_for_datagrams, IBV_WR_SEND_WITH_INV, "ud.send-with-invalidate-is-refused");
}

CASE("ud.from-two-senders-each-is-named")
{
	struct datagrams d;

	datagrams_up(&d);
	struct ibv_qp_init_attr init = init_of(&d.a, &(struct wish){.type = IBV_QPT_UD});
	struct ibv_qp *other = ibv_create_qp(d.a.pd, &init), *first = d.a.qp;
	NEED(other);
	to_rts(other);
	NEED(post_recv(&d.b, 1, 0, 1000) == 0 && post_recv(&d.b, 2, 1000, 1000) == 0);
	NEED(send_to(&d, 3, IBV_WR_SEND, 8, QKEY) == 0);
	EQ(WORKS(d.b.rcq, 1).src_qp, first->qp_num);
	d.a.qp = other;
	NEED(send_to(&d, 4, IBV_WR_SEND, 8, QKEY) == 0);
	EQ(WORKS(d.b.rcq, 2).src_qp, other->qp_num);
}

CASE("ud.solicited")
{
	struct datagrams d;

	datagrams_up(&d);
	EQ(ibv_req_notify_cq(d.b.rcq, 1), 0);
	NEED(post_recv(&d.b, 1, 0, 1000) == 0);
	struct ibv_sge list = sge(&d.a, 0, 8);
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED,
				 .wr.ud = {d.ah, d.b.qp->qp_num, QKEY}}, *bad;
	NEED(ibv_post_send(d.a.qp, &wr, &bad) == 0);
	one_event(&d.b, d.b.rcq);
	WORKS(d.b.rcq, 1);
}

static struct ibv_qp *qp_with(uint64_t ops, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = ops,
	};

	return ibv_create_qp_ex(env.ctx, &init);
}

CASE("ud.by-ibv_wr_set_ud_addr")
{
	struct datagrams d;

	datagrams_up(&d);
	struct ibv_qp *qp = qp_with(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM, d.a.pd, d.a.scq);
	if (!qp)
		absent_or_wrong("ibv_create_qp_ex of type UD");
	to_rts(qp);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	NEED(ex);
	NEED(post_recv(&d.b, 7, 0, 200) == 0);
	fill(d.a.buf, 100, 3);
	ibv_wr_start(ex);
	ex->wr_id = 8;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(ex, htonl(77));
	ibv_wr_set_ud_addr(ex, d.ah, d.b.qp->qp_num, QKEY);
	ibv_wr_set_sge(ex, d.a.mr->lkey, (uintptr_t)d.a.buf, 100);
	EQ(ibv_wr_complete(ex), 0);
	WORKS(d.a.scq, 8);
	struct ibv_wc wc = WORKS(d.b.rcq, 7);
	EQ(wc.byte_len, GRH + 100);
	EQ(wc.src_qp, qp->qp_num);
	EQ(wc.wc_flags & (IBV_WC_GRH | IBV_WC_WITH_IMM), IBV_WC_GRH | IBV_WC_WITH_IMM);
	EQ(ntohl(wc.imm_data), 77);
	CHECK(holds(d.b.buf + GRH, 100, 3));

	if (!env.weft)
		return;
	/* One without an address is refused, and what was built with it. */
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, d.ah, d.b.qp->qp_num, QKEY);
	ibv_wr_send(ex);
	EQ(ibv_wr_complete(ex), EINVAL);
	CHECK(quiet(d.a.scq));
}

CASE("ud.operations-of-connections-are-refused-when-it-is-made")
{
	struct datagrams d;

	datagrams_up(&d);
	errno = 0;
	CHECK(qp_with(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE, d.a.pd, d.a.scq) == NULL);
	CHECKF(errno == EOPNOTSUPP || (!env.weft && errno), "errno %d (%s)", errno, strerror(errno));
}

CASE("ud.queue-key-is-read-back")
{
	struct datagrams d;
	struct ibv_qp_attr got;
	struct ibv_qp_init_attr init;

	datagrams_up(&d);
	EQ(ibv_query_qp(d.a.qp, &got, IBV_QP_QKEY, &init), 0);
	EQ(got.qp_state, IBV_QPS_RTS);
	EQ(got.qkey, QKEY);
	EQ(init.qp_type, IBV_QPT_UD);
}

/* --- address handles */

CASE("ah.made-and-destroyed")
{
	struct ibv_ah_attr address = own_address();
	struct ibv_pd *pd = a_pd();
	struct ibv_ah *ah = ibv_create_ah(pd, &address);

	if (!ah)
		absent_or_wrong("ibv_create_ah");
	CHECK(ah->context == env.ctx && ah->pd == pd);
	EQ(ibv_dealloc_pd(pd), EBUSY);
	EQ(ibv_destroy_ah(ah), 0);
	EQ(ibv_dealloc_pd(pd), 0);
}

static void wrong_ah(long which)
{
	struct ibv_ah_attr address = own_address();
	struct ibv_pd *pd = a_pd();
	struct ibv_ah *ah = ibv_create_ah(pd, &address);

	if (!ah)
		absent_or_wrong("ibv_create_ah");
	EQ(ibv_destroy_ah(ah), 0);
	switch (which) {
	case 0: address.port_num = 0; break;
	case 1: address.grh.sgid_index = 255; break;
	default:
		if (env.port.link_layer != IBV_LINK_LAYER_ETHERNET)
			SKIP("the link layer is InfiniBand");
		address.is_global = 0;
	}
	CHECK(ibv_create_ah(pd, &address) == NULL);
}

CASES
{
	ADD(wrong_ah, 0, "ah.of-port-0-is-refused");
	ADD(wrong_ah, 1, "ah.of-a-gid-index-past-the-table-is-refused");
	ADD(wrong_ah, 2, "ah.without-a-gid-on-ethernet-is-refused");
}

CASE("ah.refused-where-there-are-none")
{
	struct ibv_ah_attr address = own_address();

	if (env.dev.max_ah)
		SKIP("the device reports address handles");
	errno = 0;
	CHECK(ibv_create_ah(a_pd(), &address) == NULL);
	CHECKF(says_unsupported(errno) || errno == EINVAL, "errno %d (%s)", errno, strerror(errno));
}

/* --- UC */

static void uc_up(struct pair *p)
{
	struct ibv_qp *qp = qp_of(IBV_QPT_UC, a_pd(), a_cq(8));

	if (!qp && env.iwarp)
		SKIP("the device's transport is iWARP, which has no UC");
	if (!qp)
		absent_or_wrong("a queue pair of type UC");
	pair_up(p, (struct wish){.type = IBV_QPT_UC});
}

static void uc_send(long length)
{
	struct pair p;

	uc_up(&p);
	fill(p.a.buf, (size_t)length, 4);
	NEED(post_recv(&p.b, 1, 0, (uint32_t)length) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, (uint32_t)length) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, length);
	WORKS(p.a.scq, 2);
	CHECK(holds(p.b.buf, (size_t)length, 4));
	pair_down(&p);
}

static void uc_write(long length)
{
	struct pair p;

	uc_up(&p);
	fill(p.a.buf, (size_t)length, 4);
	NEED(post_recv(&p.b, 1, 0, 0) == 0);
	NEED(post(&p.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, 0, (uint32_t)length, &p.b, 64) == 0);
	EQ(WORKS(p.b.rcq, 1).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	WORKS(p.a.scq, 2);
	CHECK(holds(p.b.buf + 64, (size_t)length, 4));
	pair_down(&p);
}

CASES
{
	static const int sizes[] = {0, 1, 1024, 65537, 1 << 20};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		ADD(uc_send, sizes[i], "uc.send-of-%d", sizes[i]);
		ADD(uc_write, sizes[i], "uc.write-with-immediate-of-%d", sizes[i]);
	}
}

static void not_for_uc(long op)
{
	struct pair p;

	uc_up(&p);
	int error = post(&p.a, 2, (enum ibv_wr_opcode)op, IBV_SEND_SIGNALED, 0, 8, &p.b, 0);
	CHECKF(error == EINVAL || says_unsupported(error), "%s", strerror(error));
}

CASES
{
	ADD(not_for_uc, IBV_WR_RDMA_READ, "uc.read-is-refused");
	ADD(not_for_uc, IBV_WR_ATOMIC_FETCH_AND_ADD, "uc.atomic-is-refused");
}

CASE("uc.without-a-receive-the-send-is-lost-and-the-connection-stays")
{
	struct pair p;

	uc_up(&p);
	NEED(send_of(&p.a, 1, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.a.scq, 1);
	CHECK(quiet(p.b.rcq));
	EQ(state_of(p.a.qp), IBV_QPS_RTS);
	NEED(post_recv(&p.b, 2, 0, 64) == 0);
	CHECK(quiet(p.b.rcq));
	NEED(send_of(&p.a, 3, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 2);
	pair_down(&p);
}

CASE("uc.a-write-to-a-wrong-key-is-lost")
{
	struct pair p;

	uc_up(&p);
	struct ibv_sge list = sge(&p.a, 0, 8);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)p.b.buf, p.b.mr->rkey + 0x100}}, *bad;
	p.a.buf[0] = 0x77;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	WORKS(p.a.scq, 1);
	CHECK(quiet(p.b.rcq));
	EQ(p.b.buf[0], 0);
	EQ(state_of(p.a.qp), IBV_QPS_RTS);
	pair_down(&p);
}
