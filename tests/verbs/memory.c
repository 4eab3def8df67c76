/* Protection domains and memory regions. */
#include "env.h"

CASE("pd.fields")
{
	struct ibv_pd *pd = a_pd();

	CHECK(pd->context == env.ctx);
	EQ(ibv_dealloc_pd(pd), 0);
}

CASE("pd.with-a-region-is-busy")
{
	struct ibv_pd *pd = a_pd();
	struct ibv_mr *mr = ibv_reg_mr(pd, some_memory(4096), 4096, LW);

	NEED(mr);
	EQ(ibv_dealloc_pd(pd), EBUSY);
	EQ(ibv_dereg_mr(mr), 0);
	EQ(ibv_dealloc_pd(pd), 0);
}

CASE("pd.with-a-queue-pair-is-busy")
{
	struct ibv_pd *pd = a_pd();
	struct ibv_cq *cq = a_cq(8);
	struct ibv_qp *qp = a_qp(pd, cq);

	EQ(ibv_dealloc_pd(pd), EBUSY);
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_dealloc_pd(pd), 0);
	EQ(ibv_destroy_cq(cq), 0);
}

CASE("pd.with-a-shared-queue-is-busy")
{
	need_srq();
	struct ibv_pd *pd = a_pd();
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);

	NEED(srq);
	EQ(ibv_dealloc_pd(pd), EBUSY);
	EQ(ibv_destroy_srq(srq), 0);
	EQ(ibv_dealloc_pd(pd), 0);
}

CASE("pd.many")
{
	struct ibv_pd *pds[100];

	for (int i = 0; i < 100; i++)
		NEED(pds[i] = ibv_alloc_pd(env.ctx));
	for (int i = 0; i < 100; i++)
		EQ(ibv_dealloc_pd(pds[i]), 0);
}

CASE("pd.parent-domain-or-refused")
{
	struct ibv_pd *pd = a_pd();
	struct ibv_parent_domain_init_attr attr = {.pd = pd};
	struct ibv_pd *parent = ibv_alloc_parent_domain(env.ctx, &attr);

	if (!parent)
		absent_or_wrong("ibv_alloc_parent_domain");
	EQ(ibv_dealloc_pd(parent), 0);
	EQ(ibv_dealloc_pd(pd), 0);
}

/* --- registration */

static void rights(long access)
{
	struct ibv_pd *pd = a_pd();
	struct ibv_mr *mr = ibv_reg_mr(pd, some_memory(8192), 8192, (int)access);

	/* ibv_reg_mr(3): remote write and remote atomic need local write. */
	bool wrong = (access & (RW | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & LW);
	if (wrong) {
		CHECK(!mr && errno == EINVAL);
		return;
	}
	if (!mr && (access & IBV_ACCESS_REMOTE_ATOMIC) && env.dev.atomic_cap == IBV_ATOMIC_NONE)
		SKIP("the device reports no atomics, and refuses the right");
	if (!mr && (access & IBV_ACCESS_MW_BIND) && env.dev.max_mw == 0)
		SKIP("the device reports no memory windows, and refuses the right");
	NEED(mr);
	CHECK(mr->pd == pd && mr->length == 8192);
	EQ(ibv_dereg_mr(mr), 0);
}

CASES
{
	static const struct {
		int flag;
		const char *name;
	} flags[] = {{LW, "LW"}, {RW, "RW"}, {RR, "RR"}, {IBV_ACCESS_REMOTE_ATOMIC, "RA"}, {IBV_ACCESS_MW_BIND, "MW"}};

	for (int set = 0; set < 32; set++) {
		char name[64] = "";
		long access = 0;
		for (int i = 0; i < 5; i++)
			if (set & 1 << i) {
				strcat(strcat(name, "-"), flags[i].name);
				access |= flags[i].flag;
			}
		ADD(rights, access, "mr.rights%s", set ? name : "-none");
	}
}

CASE("mr.fields")
{
	struct ibv_pd *pd = a_pd();
	char *memory = some_memory(8192);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory + 3, 5000, LW | RR);

	NEED(mr);
	CHECK(mr->context == env.ctx && mr->pd == pd);
	CHECK(mr->addr == memory + 3);
	EQ(mr->length, 5000);
	CHECK(mr->lkey && mr->rkey);
	EQ(ibv_dereg_mr(mr), 0);
}

CASE("mr.one-octet")
{
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), some_memory(4096), 1, LW);

	NEED(mr);
	EQ(mr->length, 1);
	EQ(ibv_dereg_mr(mr), 0);
}

CASE("mr.zero-octets-work-or-are-invalid")
{
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), some_memory(4096), 0, LW);

	if (mr)
		EQ(ibv_dereg_mr(mr), 0);
	else
		EQ(errno, EINVAL);
}

CASE("mr.unmapped-is-a-bad-address")
{
	char *memory = memory_apart(8192);

	NEED(munmap(memory, 8192) == 0);
	NONE(ibv_reg_mr(a_pd(), memory, 4096, LW), EFAULT);
}

CASE("mr.half-mapped-is-a-bad-address")
{
	char *memory = memory_apart(8192);

	NEED(munmap(memory + 4096, 4096) == 0);
	NONE(ibv_reg_mr(a_pd(), memory, 8192, LW), EFAULT);
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), memory, 4096, LW);
	NEED(mr);
	EQ(ibv_dereg_mr(mr), 0);
}

CASE("mr.wrapping-around-is-refused")
{
	CHECK(ibv_reg_mr(a_pd(), (void *)(UINTPTR_MAX - 4095), 8192, LW) == NULL);
	CHECK(errno == EINVAL || errno == EFAULT || errno == ENOMEM);
}

CASE("mr.unknown-right-is-invalid")
{
	NONE(ibv_reg_mr(a_pd(), some_memory(4096), 4096, LW | 1 << 15), EINVAL);
}

CASE("mr.optional-rights-are-ignored-if-unknown")
{
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), some_memory(4096), 4096, LW | 1 << 29);

	CHECK(mr);
	if (mr)
		EQ(ibv_dereg_mr(mr), 0);
}

CASE("mr.relaxed-ordering")
{
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), some_memory(4096), 4096, LW | RW | IBV_ACCESS_RELAXED_ORDERING);

	CHECK(mr);
	if (mr)
		EQ(ibv_dereg_mr(mr), 0);
}

CASE("mr.huge-pages-are-a-hint")
{
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), some_memory(4096), 4096, LW | IBV_ACCESS_HUGETLB);

	NEED(mr);
	EQ(ibv_dereg_mr(mr), 0);
}

CASE("mr.overlapping-regions-have-keys-of-their-own")
{
	struct ibv_pd *pd = a_pd();
	char *memory = some_memory(8192);
	struct ibv_mr *one = ibv_reg_mr(pd, memory, 8192, LW), *same = ibv_reg_mr(pd, memory, 8192, LW);
	struct ibv_mr *inner = ibv_reg_mr(pd, memory + 100, 50, LW | RW);

	NEED(one && same && inner);
	CHECK(one->lkey != same->lkey && one->lkey != inner->lkey && same->lkey != inner->lkey);
	EQ(ibv_dereg_mr(one), 0);
	EQ(ibv_dereg_mr(same), 0);
	EQ(ibv_dereg_mr(inner), 0);
}

CASE("mr.many")
{
	enum { MANY = 300 };
	struct ibv_pd *pd = a_pd();
	struct ibv_mr *mrs[MANY];
	char *memory = some_memory(4096);

	for (int i = 0; i < MANY; i++)
		NEED(mrs[i] = ibv_reg_mr(pd, memory, 4096, LW));
	for (int i = 0; i < MANY; i++)
		for (int j = 0; j < i; j++)
			if (mrs[i]->lkey == mrs[j]->lkey)
				CHECK(!"two regions have one key");
	for (int i = 0; i < MANY; i++)
		EQ(ibv_dereg_mr(mrs[i]), 0);
}

CASE("mr.a-key-is-not-used-again-at-once")
{
	struct ibv_pd *pd = a_pd();
	char *memory = some_memory(4096);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 4096, LW | RW);
	NEED(mr);
	uint32_t key = mr->rkey;

	EQ(ibv_dereg_mr(mr), 0);
	NEED(mr = ibv_reg_mr(pd, memory, 4096, LW | RW));
	CHECK(mr->rkey != key);
	EQ(ibv_dereg_mr(mr), 0);
}

CASE("mr.read-only-memory-for-sending")
{
	char *memory = some_memory(4096);
	NEED(mprotect(memory, 4096, PROT_READ) == 0);
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), memory, 4096, 0);

	NEED(mr);
	EQ(ibv_dereg_mr(mr), 0);
}

CASE("mr.dmabuf-of-a-bad-descriptor")
{
	CHECK(ibv_reg_dmabuf_mr(a_pd(), 0, 4096, 0, -1, LW) == NULL);
	CHECK(errno == EBADF || errno == EINVAL || says_unsupported(errno));
}

CASE("mr.advice-needs-on-demand-paging")
{
	struct ibv_pd *pd = a_pd();
	char *memory = some_memory(4096);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 4096, LW);
	NEED(mr);
	struct ibv_sge list = {(uintptr_t)memory, 4096, mr->lkey};

	if (env.devx.odp_caps.general_caps & IBV_ODP_SUPPORT)
		SKIP("the device reports on-demand paging");
	CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &list, 1) != 0);
}

/* --- registering again */

CASE("rereg.access")
{
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), some_memory(4096), 4096, LW);
	NEED(mr);
	int error = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, LW | RW);

	if (error && says_unsupported(errno))
		SKIP("the device refuses ibv_rereg_mr (%s)", strerror(errno));
	EQ(error, 0);
	EQ(mr->length, 4096);
	EQ(ibv_dereg_mr(mr), 0);
}

/* Programs have told their peers the key by then. */
CASE("rereg.access-keeps-the-keys")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	uint32_t lkey = p.b.mr->lkey, rkey = p.b.mr->rkey;
	for (int i = 0; i < 3; i++) {
		int error = ibv_rereg_mr(p.b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, LW | RW);
		if (error && says_unsupported(errno))
			SKIP("the device refuses ibv_rereg_mr (%s)", strerror(errno));
		EQ(error, 0);
		CHECK(p.b.mr->lkey == lkey && p.b.mr->rkey == rkey);
		fill(p.a.buf, 100, i);
		EQ(post(&p.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 100, &p.b, 0), 0);
		WORKS(p.a.scq, i);
	}
	EQ(ibv_rereg_mr(p.b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, LW), 0);
	EQ(p.b.mr->rkey, rkey);
	/* Under the same key the right is gone. The answer to a Read says what became of the connection. */
	EQ(post(&p.a, 8, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 4096, 100, &p.b, 0), 0);
	struct ibv_wc wc;
	NEED(reap(p.a.scq, &wc));
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_WR_FLUSH_ERR);
}

CASE("rereg.translation")
{
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), some_memory(4096), 4096, LW);
	char *other = some_memory(8192);
	NEED(mr);
	int error = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, 8192, 0);

	if (error && says_unsupported(errno))
		SKIP("the device refuses ibv_rereg_mr (%s)", strerror(errno));
	EQ(error, 0);
	CHECK(mr->addr == other);
	EQ(mr->length, 8192);
	EQ(ibv_dereg_mr(mr), 0);
}

CASE("rereg.translation-ends-the-first-key")
{
	need_weft();
	struct pair p;

	pair_up(&p, (struct wish){});
	uint32_t key = p.b.mr->rkey;
	EQ(ibv_rereg_mr(p.b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p.b.buf + 8192, 4096, 0), 0);
	CHECK(p.b.mr->rkey != key);
	struct ibv_sge list = sge(&p.a, 0, 8);
	struct ibv_send_wr wr = {.sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)p.b.buf, key}}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	COMPLETES(p.a.scq, 0, IBV_WC_REM_ACCESS_ERR);
	pair_down(&p);
}

CASE("rereg.domain")
{
	struct ibv_pd *one = a_pd(), *two = a_pd();
	struct ibv_mr *mr = ibv_reg_mr(one, some_memory(4096), 4096, LW);
	NEED(mr);
	int error = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, two, NULL, 0, 0);

	if (error && says_unsupported(errno))
		SKIP("the device refuses ibv_rereg_mr (%s)", strerror(errno));
	EQ(error, 0);
	CHECK(mr->pd == two);
	EQ(ibv_dealloc_pd(one), 0);
	EQ(ibv_dealloc_pd(two), EBUSY);
	EQ(ibv_dereg_mr(mr), 0);
}

CASE("rereg.flags-of-nothing-are-an-input-error")
{
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), some_memory(4096), 4096, LW);

	NEED(mr);
	EQ(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	EQ(ibv_dereg_mr(mr), 0);
}

CASE("rereg.unknown-flags-are-an-input-error")
{
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), some_memory(4096), 4096, LW);

	NEED(mr);
	EQ(ibv_rereg_mr(mr, 1 << 20, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	EQ(ibv_dereg_mr(mr), 0);
}

CASE("rereg.contradictory-rights-are-refused-and-the-region-stays")
{
	struct ibv_mr *mr = ibv_reg_mr(a_pd(), some_memory(4096), 4096, LW);

	NEED(mr);
	uint32_t key = mr->lkey;
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW) != 0);
	EQ(mr->lkey, key);
	EQ(ibv_dereg_mr(mr), 0);
}

/* --- a region's base address */

static void based(long zero)
{
	struct pair p;
	uint64_t base = zero ? 0 : 0x123456789000;

	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = zero ? ibv_reg_mr(p.b.pd, p.b.buf + 4096, 4096, LW | RW | RR | IBV_ACCESS_ZERO_BASED)
				 : ibv_reg_mr_iova(p.b.pd, p.b.buf + 4096, 4096, base, LW | RW | RR);
	if (!mr)
		absent_or_wrong(zero ? "IBV_ACCESS_ZERO_BASED" : "ibv_reg_mr_iova");
	fill(p.a.buf, 64, 1);
	struct ibv_sge list = sge(&p.a, 0, 64);
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {base + 100, mr->rkey}}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	WORKS(p.a.scq, 2);
	list.addr += 1024;
	wr.opcode = IBV_WR_RDMA_READ;
	wr.wr_id = 3;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	WORKS(p.a.scq, 3);
	CHECK(holds(p.b.buf + 4096 + 100, 64, 1));
	CHECK(holds(p.a.buf + 1024, 64, 1));
	EQ(ibv_dereg_mr(mr), 0);
	pair_down(&p);
}

CASES
{
	ADD(based, 0, "mr.remote-address-from-an-iova");
	ADD(based, 1, "mr.remote-address-from-zero");
}

CASE("mr.local-address-from-an-iova")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = ibv_reg_mr_iova(p.a.pd, p.a.buf + 4096, 4096, 0x5000, LW);
	if (!mr)
		absent_or_wrong("ibv_reg_mr_iova");
	fill(p.a.buf + 4096, 64, 4);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	struct ibv_sge list = {0x5000, 64, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	WORKS(p.a.scq, 2);
	WORKS(p.b.rcq, 1);
	CHECK(holds(p.b.buf, 64, 4));
	EQ(ibv_dereg_mr(mr), 0);
	pair_down(&p);
}
