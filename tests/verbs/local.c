/* What a region lets happen on the local side: ranges, keys, rights. */
#include "env.h"

/* Sends out of, or receives into, a range relative to a region of 4096 octets at 4096 of a's buffer. */
struct local {
	const char *name;
	long offset;
	uint32_t length;
	bool good;
};

static const struct local locals[] = {
	{"all-of-it", 0, 4096, true},	      {"the-first-octet", 0, 1, true},
	{"the-last-octet", 4095, 1, true},    {"one-before", -1, 8, false},
	{"one-past-the-end", 0, 4097, false}, {"the-octet-before", -1, 1, false},
	{"the-octet-after", 4096, 1, false},  {"far-outside", 1 << 20, 8, false},
	{"across-the-end", 4090, 7, false},
};

static struct ibv_mr *inner_region(struct side *s, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(s->pd, s->buf + 4096, 4096, access);

	NEED(mr);
	return mr;
}

static void local_send(long at)
{
	const struct local *c = &locals[at];
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = inner_region(&p.a, LW);
	fill(p.a.buf, 16384, 3);
	NEED(post_recv(&p.b, 1, 0, 8192) == 0);
	struct ibv_sge list = {(uintptr_t)p.a.buf + 4096 + (unsigned long)c->offset, c->length, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	if (c->good) {
		WORKS(p.a.scq, 2);
		EQ(WORKS(p.b.rcq, 1).byte_len, c->length);
		SAME(p.b.buf, p.a.buf + 4096 + c->offset, c->length);
	} else {
		COMPLETES(p.a.scq, 2, IBV_WC_LOC_PROT_ERR);
		CHECK(becomes(p.a.qp, IBV_QPS_ERR) || state_of(p.a.qp) == IBV_QPS_SQE);
	}
	EQ(ibv_dereg_mr(mr), 0);
	pair_down(&p);
}

static void local_receive(long at)
{
	const struct local *c = &locals[at];
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = inner_region(&p.b, LW);
	fill(p.a.buf, 16384, 5);
	struct ibv_sge list = {(uintptr_t)p.b.buf + 4096 + (unsigned long)c->offset, c->length, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1}, *bad;
	NEED(ibv_post_recv(p.b.qp, &wr, &bad) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, c->length) == 0);
	if (c->good) {
		EQ(WORKS(p.b.rcq, 1).byte_len, c->length);
		SAME(p.b.buf + 4096 + c->offset, p.a.buf, c->length);
	} else {
		COMPLETES(p.b.rcq, 1, IBV_WC_LOC_PROT_ERR);
		untouched_but(&p.b, 16384, 4096, c->length > ONE_SEGMENT ? 4096 : 0);
	}
	EQ(ibv_dereg_mr(mr), 0);
	pair_down(&p);
}

CASES
{
	for (long i = 0; i < (long)(sizeof(locals) / sizeof(*locals)); i++) {
		ADD(local_send, i, "local.send-%s", locals[i].name);
		ADD(local_receive, i, "local.receive-%s", locals[i].name);
	}
}

/* A local key that is wrong in this way, in a send and in a receive. */
enum wrong_key { KEY_ZERO, KEY_ONE_OFF, KEY_DEAD, KEY_OTHER_DOMAIN, KEY_KINDS };
static const char *const key_names[] = {"of-zero", "off-by-one", "of-a-dead-region", "of-another-domain"};

static uint32_t wrong_key(struct side *s, enum wrong_key kind)
{
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	uint32_t key;

	switch (kind) {
	case KEY_ZERO: return 0;
	case KEY_ONE_OFF: return s->mr->lkey + 0x100;
	case KEY_DEAD:
		mr = inner_region(s, LW);
		key = mr->lkey;
		NEED(ibv_dereg_mr(mr) == 0);
		return key;
	default:
		NEED(pd = ibv_alloc_pd(s->ctx));
		NEED(mr = ibv_reg_mr(pd, s->buf, 8192, ALL_ACCESS));
		return mr->lkey;
	}
}

static void send_with_wrong_key(long kind)
{
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	struct ibv_sge list = {(uintptr_t)p.a.buf + 4096, 8, wrong_key(&p.a, (enum wrong_key)kind)};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	/* An error completes whether or not it was asked for. */
	COMPLETES(p.a.scq, 2, IBV_WC_LOC_PROT_ERR);
	CHECK(becomes(p.a.qp, IBV_QPS_ERR));
}

static void receive_with_wrong_key(long kind)
{
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_sge list = {(uintptr_t)p.b.buf + 4096, 8, wrong_key(&p.b, (enum wrong_key)kind)};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1}, *bad;
	NEED(ibv_post_recv(p.b.qp, &wr, &bad) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	COMPLETES(p.b.rcq, 1, IBV_WC_LOC_PROT_ERR);
	CHECK(becomes(p.b.qp, IBV_QPS_ERR));
}

CASES
{
	for (long i = 0; i < KEY_KINDS; i++) {
		ADD(send_with_wrong_key, i, "local.send-with-a-key-%s", key_names[i]);
		ADD(receive_with_wrong_key, i, "local.receive-with-a-key-%s", key_names[i]);
	}
}

CASE("local.receive-into-a-region-without-local-write")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = inner_region(&p.b, RR);
	struct ibv_sge list = {(uintptr_t)p.b.buf + 4096, 64, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1}, *bad;
	NEED(ibv_post_recv(p.b.qp, &wr, &bad) == 0);
	p.a.buf[0] = 1;
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 8) == 0);
	COMPLETES(p.b.rcq, 1, IBV_WC_LOC_PROT_ERR);
	EQ(p.b.buf[4096], 0);
}

CASE("local.read-into-a-region-without-local-write")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = inner_region(&p.a, RR);
	struct ibv_sge list = {(uintptr_t)p.a.buf + 4096, 64, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)p.b.buf, p.b.mr->rkey}}, *bad;
	p.b.buf[0] = 1;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	struct ibv_wc wc = {};
	NEED(reap(p.a.scq, &wc));
	CHECKF(wc.status == IBV_WC_LOC_PROT_ERR || (env.iwarp && wc.status == IBV_WC_LOC_QP_OP_ERR), "status %s",
	       ibv_wc_status_str(wc.status));
	EQ(p.a.buf[4096], 0);
}

CASE("local.send-from-a-region-without-any-right")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = inner_region(&p.a, 0);
	fill(p.a.buf + 4096, 64, 9);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	struct ibv_sge list = {(uintptr_t)p.a.buf + 4096, 64, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	WORKS(p.a.scq, 2);
	WORKS(p.b.rcq, 1);
	CHECK(holds(p.b.buf, 64, 9));
	EQ(ibv_dereg_mr(mr), 0);
	pair_down(&p);
}

CASE("local.memory-unmapped-under-its-region-is-an-error-completion")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	char *memory = memory_apart(1 << 16);
	struct ibv_mr *mr = ibv_reg_mr(p.a.pd, memory, 1 << 16, LW);
	NEED(mr);
	NEED(munmap(memory, 1 << 16) == 0);
	NEED(post_recv(&p.b, 1, 0, 1 << 16) == 0);
	struct ibv_sge list = {(uintptr_t)memory, 1 << 16, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;
	/* A device that pins the pages sends what they hold; one that does not says that they are gone. */
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	struct ibv_wc wc = {};
	NEED(reap(p.a.scq, &wc));
	CHECKF((wc.status == IBV_WC_SUCCESS && !env.weft) || wc.status == IBV_WC_LOC_PROT_ERR, "status %s",
	       ibv_wc_status_str(wc.status));
}
