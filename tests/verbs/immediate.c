/* Immediate data, and atomics. */
#include "env.h"

/* What a device that refuses immediate data says. */
CASE("imm.is-taken-or-refused-in-words")
{
	struct pair p;
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};

	for (int i = 0; i < 2; i++) {
		pair_up(&p, (struct wish){});
		NEED(post_recv(&p.b, 1, 0, 64) == 0);
		int error = post(&p.a, 2, ops[i], IBV_SEND_SIGNALED, 0, 8, &p.b, 0);
		if (env.iwarp)
			CHECKF(error == 0 || error == EINVAL || says_unsupported(error), "%s", strerror(error));
		else
			EQ(error, 0);
		/* A refused post leaves the connection as it was. */
		if (error) {
			EQ(state_of(p.a.qp), IBV_QPS_RTS);
			NEED(send_of(&p.a, 3, IBV_SEND_SIGNALED, 0, 8) == 0);
		}
		WORKS(p.b.rcq, 1);
		pair_down(&p);
	}
}

static void send_imm(long length)
{
	need_immediate();
	struct pair p;

	pair_up(&p, (struct wish){});
	fill(p.a.buf, (size_t)length, 3);
	NEED(post_recv(&p.b, 1, 0, (uint32_t)length) == 0);
	NEED(post(&p.a, 2, IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED, 0, (uint32_t)length, NULL, 0) == 0);
	struct ibv_wc wc = WORKS(p.b.rcq, 1);
	EQ(wc.opcode, IBV_WC_RECV);
	EQ(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
	EQ(ntohl(wc.imm_data), 0x01020304);
	EQ(wc.byte_len, length);
	wc = WORKS(p.a.scq, 2);
	EQ(wc.opcode, IBV_WC_SEND);
	CHECK(holds(p.b.buf, (size_t)length, 3));
	pair_down(&p);
}

static void write_imm(long length)
{
	need_immediate();
	struct pair p;

	pair_up(&p, (struct wish){});
	fill(p.a.buf, (size_t)length, 3);
	/* The receive needs no memory: the octets go where the write says. */
	NEED(post_recv(&p.b, 1, 0, 0) == 0);
	NEED(post(&p.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, 0, (uint32_t)length, &p.b, 100) == 0);
	struct ibv_wc wc = WORKS(p.b.rcq, 1);
	EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	EQ(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
	EQ(ntohl(wc.imm_data), 0x01020304);
	EQ(wc.byte_len, length);
	CHECK(holds(p.b.buf + 100, (size_t)length, 3));
	wc = WORKS(p.a.scq, 2);
	EQ(wc.opcode, IBV_WC_RDMA_WRITE);
	pair_down(&p);
}

CASES
{
	static const int sizes[] = {0, 1, 64, 1024, 65537, 1 << 20, 3 * (1 << 20) + 1};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		ADD(send_imm, sizes[i], "imm.send-of-%d", sizes[i]);
		ADD(write_imm, sizes[i], "imm.write-of-%d", sizes[i]);
	}
}

CASE("imm.every-octet-of-it-arrives")
{
	need_immediate();
	struct pair p;
	static const uint32_t values[] = {0, 1, 0x80000000, 0xffffffff, 0x00ff00ff};

	pair_up(&p, (struct wish){});
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		struct ibv_send_wr wr = {.wr_id = i, .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = IBV_SEND_SIGNALED,
					 .imm_data = values[i]}, *bad;
		NEED(post_recv(&p.b, i, 0, 64) == 0);
		NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
		EQ(WORKS(p.b.rcq, i).imm_data, values[i]);
		WORKS(p.a.scq, i);
	}
	pair_down(&p);
}

CASE("imm.plain-sends-between-have-none")
{
	need_immediate();
	struct pair p;

	pair_up(&p, (struct wish){});
	for (uint64_t i = 0; i < 10; i++) {
		NEED(post_recv(&p.b, i, 0, 64) == 0);
		NEED(post(&p.a, i, i & 1 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED, 0, 8, NULL, 0) == 0);
	}
	for (uint64_t i = 0; i < 10; i++)
		EQ(WORKS(p.b.rcq, i).wc_flags & IBV_WC_WITH_IMM, i & 1 ? 0 : IBV_WC_WITH_IMM);
	pair_down(&p);
}

CASE("imm.a-solicited-write-wakes")
{
	need_immediate();
	struct pair p;

	pair_up(&p, (struct wish){});
	EQ(ibv_req_notify_cq(p.b.rcq, 1), 0);
	NEED(post_recv(&p.b, 1, 0, 0) == 0);
	NEED(post_recv(&p.b, 2, 0, 0) == 0);
	NEED(post(&p.a, 3, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, 0, 8, &p.b, 0) == 0);
	WORKS(p.b.rcq, 1);
	CHECK(!readable(p.b.channel->fd, QUIET));
	NEED(post(&p.a, 4, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, 0, 8, &p.b, 0) == 0);
	one_event(&p.b, p.b.rcq);
	WORKS(p.b.rcq, 2);
	pair_down(&p);
}

CASE("imm.inline")
{
	need_immediate();
	struct pair p;

	pair_up(&p, (struct wish){.inline_data = 32});
	fill(p.a.buf, 32, 3);
	NEED(post_recv(&p.b, 1, 0, 0) == 0);
	NEED(post(&p.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 32, &p.b, 0) == 0);
	memset(p.a.buf, 0, 32);
	WORKS(p.b.rcq, 1);
	CHECK(holds(p.b.buf, 32, 3));
	pair_down(&p);
}

CASE("imm.a-write-takes-from-the-shared-queue")
{
	need_srq();
	need_immediate();
	struct pair p;

	pair_up(&p, (struct wish){.srq = 4});
	NEED(post_recv(&p.b, 7, 0, 64) == 0);
	NEED(post(&p.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, 0, 8, &p.b, 1000) == 0);
	EQ(WORKS(p.b.rcq, 7).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	pair_down(&p);
}

CASE("imm.a-write-to-a-wrong-key-takes-no-receive")
{
	need_immediate();
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	struct ibv_sge list = sge(&p.a, 0, 8);
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)p.b.buf, p.b.mr->rkey + 0x100}},
			   *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	COMPLETES(p.b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
}

/* --- atomics */

CASE("atomic.refused-where-reported-absent")
{
	struct pair p;

	if (env.dev.atomic_cap != IBV_ATOMIC_NONE)
		SKIP("the device reports atomics");
	pair_up(&p, (struct wish){});
	int error = post_atomic(&p.a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, &p.b, 0, 1, 0);
	CHECKF(error == EINVAL || says_unsupported(error), "%s", strerror(error));
	error = post_atomic(&p.a, 1, IBV_WR_ATOMIC_CMP_AND_SWP, 0, &p.b, 0, 1, 0);
	CHECKF(error == EINVAL || says_unsupported(error), "%s", strerror(error));
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 3, IBV_SEND_SIGNALED, 0, 8) == 0);
	WORKS(p.b.rcq, 1);
	pair_down(&p);
}

static uint64_t *word(const struct side *s, size_t at)
{
	return (uint64_t *)(void *)(s->buf + at);
}

static const struct {
	const char *name;
	uint64_t before, add;
} adds[] = {
	{"one", 5, 1},
	{"zero", 5, 0},
	{"with-carry-into-the-high-half", 0xffffffff, 1},
	{"wrapping", UINT64_MAX, 2},
	{"minus-one", 5, UINT64_MAX},
};

static void fetch_add(long at)
{
	need_atomics();
	struct pair p;

	pair_up(&p, (struct wish){});
	*word(&p.b, 64) = adds[at].before;
	NEED(post_atomic(&p.a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, &p.b, 64, adds[at].add, 0) == 0);
	struct ibv_wc wc = WORKS(p.a.scq, 1);
	EQ(wc.opcode, IBV_WC_FETCH_ADD);
	EQ(wc.byte_len, 8);
	EQ(*word(&p.a, 8), adds[at].before);
	EQ(*word(&p.b, 64), adds[at].before + adds[at].add);
	pair_down(&p);
}

static const struct {
	const char *name;
	uint64_t before, compare, swap, after;
} swaps[] = {
	{"of-equals", 5, 5, 9, 9},
	{"of-others", 5, 6, 9, 5},
	{"that-differ-in-the-high-half", 0x100000005, 5, 9, 0x100000005},
	{"to-the-same", 5, 5, 5, 5},
	{"of-all-ones", UINT64_MAX, UINT64_MAX, 0, 0},
};

static void compare_swap(long at)
{
	need_atomics();
	struct pair p;

	pair_up(&p, (struct wish){});
	*word(&p.b, 64) = swaps[at].before;
	NEED(post_atomic(&p.a, 1, IBV_WR_ATOMIC_CMP_AND_SWP, 8, &p.b, 64, swaps[at].compare, swaps[at].swap) == 0);
	struct ibv_wc wc = WORKS(p.a.scq, 1);
	EQ(wc.opcode, IBV_WC_COMP_SWAP);
	EQ(wc.byte_len, 8);
	EQ(*word(&p.a, 8), swaps[at].before);
	EQ(*word(&p.b, 64), swaps[at].after);
	pair_down(&p);
}

CASES
{
	for (long i = 0; i < (long)(sizeof(adds) / sizeof(*adds)); i++)
		ADD(fetch_add, i, "atomic.add-%s", adds[i].name);
	for (long i = 0; i < (long)(sizeof(swaps) / sizeof(*swaps)); i++)
		ADD(compare_swap, i, "atomic.swap-%s", swaps[i].name);
}

static void misaligned(long offset)
{
	need_atomics();
	struct pair p;

	pair_up(&p, (struct wish){});
	*word(&p.b, 64) = 5;
	NEED(post_atomic(&p.a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, &p.b, 64 + (size_t)offset, 1, 0) == 0);
	struct ibv_wc wc = {};
	NEED(reap(p.a.scq, &wc));
	CHECKF(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_ACCESS_ERR, "status %s",
	       ibv_wc_status_str(wc.status));
	EQ(*word(&p.b, 64), 5);
}

CASES
{
	ADD(misaligned, 1, "atomic.at-an-odd-address-is-refused");
	ADD(misaligned, 4, "atomic.at-a-half-word-is-refused");
}

static void atomic_without(long access)
{
	need_atomics();
	struct pair p;

	pair_up(&p, (struct wish){.access = (int)access});
	*word(&p.b, 64) = 5;
	NEED(post_atomic(&p.a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, &p.b, 64, 1, 0) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	EQ(*word(&p.b, 64), 5);
}

CASES
{
	ADD(atomic_without, IBV_ACCESS_LOCAL_WRITE, "atomic.without-remote-rights-is-refused");
	ADD(atomic_without, ALL_ACCESS, "atomic.without-the-atomic-right-is-refused");
}

CASE("atomic.outside-the-region-is-refused")
{
	need_atomics();
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_atomic(&p.a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, &p.b, BUF, 1, 0) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
}

CASE("atomic.into-a-local-element-of-another-size-is-refused")
{
	need_atomics();
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_sge list = sge(&p.a, 0, 4);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.atomic = {.remote_addr = (uintptr_t)p.b.buf, .rkey = p.b.mr->rkey, .compare_add = 1}},
			   *bad;
	int error = ibv_post_send(p.a.qp, &wr, &bad);
	if (!error) {
		struct ibv_wc wc = {};
		NEED(reap(p.a.scq, &wc));
		CHECKF(wc.status == IBV_WC_LOC_LEN_ERR || wc.status == IBV_WC_LOC_PROT_ERR ||
			       wc.status == IBV_WC_LOC_QP_OP_ERR,
		       "status %s", ibv_wc_status_str(wc.status));
	} else {
		CHECK(error == EINVAL);
	}
}

CASE("atomic.without-local-write-is-refused")
{
	need_atomics();
	struct pair p;

	pair_up(&p, (struct wish){.a_access = IBV_ACCESS_REMOTE_READ});
	NEED(post_atomic(&p.a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, &p.b, 64, 1, 0) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_LOC_PROT_ERR);
}

CASE("atomic.sixty-adds-are-sixty")
{
	need_atomics();
	struct pair p;

	pair_up(&p, (struct wish){});
	*word(&p.b, 64) = 0;
	for (uint64_t i = 0; i < 60; i++)
		NEED(post_atomic(&p.a, i, IBV_WR_ATOMIC_FETCH_AND_ADD, 8 * i, &p.b, 64, 1, 0) == 0);
	for (uint64_t i = 0; i < 60; i++) {
		WORKS(p.a.scq, i);
		EQ(*word(&p.a, 8 * i), i);
	}
	EQ(*word(&p.b, 64), 60);
	pair_down(&p);
}

CASE("atomic.in-order-with-others")
{
	need_atomics();
	struct pair p;

	pair_up(&p, (struct wish){});
	*word(&p.b, 64) = 0;
	for (uint64_t i = 0; i < 30; i++) {
		if (i % 3 == 0)
			NEED(post_atomic(&p.a, i, IBV_WR_ATOMIC_FETCH_AND_ADD, 8 * i, &p.b, 64, 1, 0) == 0);
		else
			NEED(post(&p.a, i, i % 3 == 1 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 4096, 64,
				  &p.b, 4096) == 0);
	}
	for (uint64_t i = 0; i < 30; i++)
		WORKS(p.a.scq, i);
	EQ(*word(&p.b, 64), 10);
	for (uint64_t i = 0; i < 30; i += 3)
		EQ(*word(&p.a, 8 * i), i / 3);
	pair_down(&p);
}
