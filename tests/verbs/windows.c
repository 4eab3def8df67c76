/* Memory windows. */
#include "env.h"

static struct ibv_mr *bindable(struct side *s)
{
	struct ibv_mr *mr = ibv_reg_mr(s->pd, s->buf, BUF, LW | IBV_ACCESS_MW_BIND);

	NEED(mr);
	return mr;
}

/* Binds over [at, at + length) of b's buffer. */
static int bind_over(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr, size_t at, size_t length, int access)
{
	struct ibv_mw_bind_info info = {
		.mr = mr, .addr = (uintptr_t)p->b.buf + at, .length = length, .mw_access_flags = (unsigned)access};

	if (mw->type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind one = {.wr_id = 50, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
		return ibv_bind_mw(p->b.qp, mw, &one);
	}
	struct ibv_send_wr wr = {.wr_id = 50, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
				 .bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = info}}, *bad;
	int error = ibv_post_send(p->b.qp, &wr, &bad);
	if (!error)
		mw->rkey = wr.bind_mw.rkey;
	return error;
}

static int through(struct pair *p, uint64_t id, enum ibv_wr_opcode op, uint32_t key, size_t at, uint32_t length)
{
	struct ibv_sge list = sge(&p->a, 0, length);
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &list, .num_sge = 1, .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)p->b.buf + at, key}}, *bad;

	return ibv_post_send(p->a.qp, &wr, &bad);
}

static struct ibv_mw *window(struct pair *p, long type)
{
	need_windows((int)type);
	pair_up(p, (struct wish){});
	struct ibv_mw *mw = ibv_alloc_mw(p->b.pd, type == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	NEED(mw);
	return mw;
}

/* As many programs ask for it, who take a region's rights for a window's. */
static void with_local_write(long type)
{
	struct pair p;
	struct ibv_mw *mw = window(&p, type);

	EQ(bind_over(&p, mw, bindable(&p.b), 0, 4096, LW | RW | RR), 0);
	WORKS(p.b.scq, 50);
	fill(p.a.buf, 64, 5);
	EQ(through(&p, 1, IBV_WR_RDMA_WRITE, mw->rkey, 128, 64), 0);
	WORKS(p.a.scq, 1);
	EQ(through(&p, 2, IBV_WR_RDMA_READ, mw->rkey, 0, 32), 0);
	WORKS(p.a.scq, 2);
	CHECK(holds(p.b.buf + 128, 64, 5));
}

static void fields(long type)
{
	need_windows((int)type);
	struct ibv_pd *pd = a_pd();
	struct ibv_mw *mw = ibv_alloc_mw(pd, type == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);

	NEED(mw);
	CHECK(mw->context == env.ctx && mw->pd == pd);
	EQ(mw->type, type == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	EQ(ibv_dealloc_pd(pd), EBUSY);
	EQ(ibv_dealloc_mw(mw), 0);
	EQ(ibv_dealloc_pd(pd), 0);
}

static void bound(long type)
{
	struct pair p;
	struct ibv_mw *mw = window(&p, type);
	struct ibv_mr *mr = bindable(&p.b);

	EQ(bind_over(&p, mw, mr, 4096, 4096, RW | RR), 0);
	EQ(WORKS(p.b.scq, 50).opcode, IBV_WC_BIND_MW);
	fill(p.a.buf, 4096, 2);
	NEED(through(&p, 1, IBV_WR_RDMA_WRITE, mw->rkey, 4096, 4096) == 0);
	WORKS(p.a.scq, 1);
	memset(p.a.buf, 0, 4096);
	NEED(through(&p, 2, IBV_WR_RDMA_READ, mw->rkey, 4096, 4096) == 0);
	WORKS(p.a.scq, 2);
	CHECK(holds(p.a.buf, 4096, 2));
	CHECK(holds(p.b.buf + 4096, 4096, 2));
	EQ(ibv_dealloc_mw(mw), 0);
	EQ(ibv_dereg_mr(mr), 0);
	pair_down(&p);
}

static void outside(long type)
{
	struct pair p;
	struct ibv_mw *mw = window(&p, type);

	NEED(bind_over(&p, mw, bindable(&p.b), 4096, 4096, RW | RR) == 0);
	WORKS(p.b.scq, 50);
	NEED(through(&p, 1, IBV_WR_RDMA_READ, mw->rkey, 4096, 4097) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
}

static void before_it(long type)
{
	struct pair p;
	struct ibv_mw *mw = window(&p, type);

	NEED(bind_over(&p, mw, bindable(&p.b), 4096, 4096, RW | RR) == 0);
	WORKS(p.b.scq, 50);
	NEED(through(&p, 1, IBV_WR_RDMA_READ, mw->rkey, 4095, 2) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
}

static void without_right(long type)
{
	struct pair p;
	struct ibv_mw *mw = window(&p, type);

	NEED(bind_over(&p, mw, bindable(&p.b), 4096, 4096, RW) == 0);
	WORKS(p.b.scq, 50);
	NEED(through(&p, 1, IBV_WR_RDMA_READ, mw->rkey, 4096, 8) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
}

static void unbound(long type)
{
	struct pair p;
	struct ibv_mw *mw = window(&p, type);

	NEED(through(&p, 1, IBV_WR_RDMA_READ, mw->rkey, 4096, 8) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
}

static void bad_bind(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr, size_t at, size_t length, int access)
{
	int error = bind_over(p, mw, mr, at, length, access);
	struct ibv_wc wc = {};

	if (error) {
		CHECKF(error == EINVAL || error == EPERM, "%s", strerror(error));
		return;
	}
	NEED(reap(p->b.scq, &wc));
	CHECKF(wc.status == IBV_WC_MW_BIND_ERR || wc.status == IBV_WC_LOC_PROT_ERR || wc.status == IBV_WC_LOC_QP_OP_ERR,
	       "status %s", ibv_wc_status_str(wc.status));
}

static void past_the_region(long type)
{
	struct pair p;
	struct ibv_mw *mw = window(&p, type);

	bad_bind(&p, mw, bindable(&p.b), BUF - 8, 16, RW);
}

static void region_without_bind(long type)
{
	struct pair p;
	struct ibv_mw *mw = window(&p, type);
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.buf, BUF, LW);

	NEED(mr);
	bad_bind(&p, mw, mr, 0, 16, RW);
}

static void region_without_write(long type)
{
	struct pair p;
	struct ibv_mw *mw = window(&p, type);
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.buf, BUF, IBV_ACCESS_MW_BIND);

	NEED(mr);
	bad_bind(&p, mw, mr, 0, 16, RW);
}

static void other_domain(long type)
{
	struct pair p;
	struct ibv_mw *mw = window(&p, type);
	struct ibv_pd *pd = ibv_alloc_pd(p.b.ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, p.b.buf, BUF, LW | IBV_ACCESS_MW_BIND);

	NEED(mr);
	bad_bind(&p, mw, mr, 0, 16, RW);
}

static void region_in_use(long type)
{
	struct pair p;
	struct ibv_mw *mw = window(&p, type);
	struct ibv_mr *mr = bindable(&p.b);

	NEED(bind_over(&p, mw, mr, 0, 4096, RW) == 0);
	WORKS(p.b.scq, 50);
	/* A region with a window on it is in use (11.2.8.5), unless the device lets go of both. */
	int error = ibv_dereg_mr(mr);
	CHECKF(error == EBUSY || (!env.weft && (error == EINVAL || error == 0)), "%s", strerror(error));
	if (error == 0) {
		NEED(through(&p, 1, IBV_WR_RDMA_WRITE, mw->rkey, 0, 8) == 0);
		CHECK(becomes(p.a.qp, IBV_QPS_ERR));
	}
}

static void deallocated(long type)
{
	struct pair p;
	struct ibv_mw *mw = window(&p, type);

	NEED(bind_over(&p, mw, bindable(&p.b), 0, 4096, RR) == 0);
	WORKS(p.b.scq, 50);
	uint32_t key = mw->rkey;
	EQ(ibv_dealloc_mw(mw), 0);
	NEED(through(&p, 1, IBV_WR_RDMA_READ, key, 0, 8) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
}

CASES
{
	static const struct {
		case_function run;
		const char *name;
	} of_both[] = {
		{fields, "fields"},
		{bound, "write-and-read-through-it"},
		{with_local_write, "local-write-may-be-among-its-rights"},
		{outside, "not-past-its-end"},
		{before_it, "not-before-its-start"},
		{without_right, "not-without-the-right"},
		{unbound, "unbound-lets-nothing-through"},
		{past_the_region, "not-past-its-region"},
		{region_without_bind, "not-on-a-region-without-the-right-to-bind"},
		{region_without_write, "no-remote-write-on-a-region-without-local-write"},
		{other_domain, "not-on-a-region-of-another-domain"},
		{region_in_use, "its-region-is-in-use"},
		{deallocated, "deallocated-lets-nothing-through"},
	};

	for (long type = 1; type <= 2; type++)
		for (size_t i = 0; i < sizeof(of_both) / sizeof(*of_both); i++)
			ADD(of_both[i].run, type, "window-%ld.%s", type, of_both[i].name);
}

CASE("window-1.bound-again-changes-its-key")
{
	struct pair p;
	struct ibv_mw *mw = window(&p, 1);
	struct ibv_mr *mr = bindable(&p.b);

	NEED(bind_over(&p, mw, mr, 0, 64, RR) == 0);
	WORKS(p.b.scq, 50);
	uint32_t key = mw->rkey;
	NEED(bind_over(&p, mw, mr, 64, 64, RR) == 0);
	WORKS(p.b.scq, 50);
	CHECK(mw->rkey != key);
	if (env.weft)
		EQ(mw->rkey >> 8, key >> 8);
	NEED(through(&p, 1, IBV_WR_RDMA_READ, mw->rkey, 64, 64) == 0);
	WORKS(p.a.scq, 1);
	NEED(through(&p, 2, IBV_WR_RDMA_READ, key, 0, 64) == 0);
	COMPLETES(p.a.scq, 2, IBV_WC_REM_ACCESS_ERR);
}

CASE("window-1.of-length-0-is-unbound")
{
	struct pair p;
	struct ibv_mw *mw = window(&p, 1);
	struct ibv_mr *mr = bindable(&p.b);

	NEED(bind_over(&p, mw, mr, 0, 64, RR) == 0);
	WORKS(p.b.scq, 50);
	NEED(bind_over(&p, mw, mr, 0, 0, 0) == 0);
	WORKS(p.b.scq, 50);
	NEED(through(&p, 1, IBV_WR_RDMA_READ, mw->rkey, 0, 8) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
}

CASE("window-1.is-not-bound-by-a-work-request")
{
	struct pair p;
	struct ibv_mw *mw = window(&p, 1);
	struct ibv_mr *mr = bindable(&p.b);
	struct ibv_send_wr wr = {.wr_id = 50, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
				 .bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey),
					     .bind_info = {mr, (uintptr_t)p.b.buf, 64, RR}}}, *bad;

	CHECK(ibv_post_send(p.b.qp, &wr, &bad) != 0);
}

CASE("window-2.is-not-bound-by-ibv_bind_mw")
{
	struct pair p;
	struct ibv_mw *mw = window(&p, 2);
	struct ibv_mw_bind one = {.wr_id = 50, .bind_info = {bindable(&p.b), (uintptr_t)p.b.buf, 64, RR}};

	CHECK(ibv_bind_mw(p.b.qp, mw, &one) != 0);
}

CASE("window-2.invalidated-by-a-send")
{
	struct pair p;
	struct ibv_mw *mw = window(&p, 2);

	NEED(bind_over(&p, mw, bindable(&p.b), 0, 64, RR) == 0);
	WORKS(p.b.scq, 50);
	NEED(post_recv(&p.b, 1, 65536, 64) == 0);
	struct ibv_sge list = sge(&p.a, 0, 8);
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV,
				 .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = mw->rkey}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	struct ibv_wc wc = WORKS(p.b.rcq, 1);
	EQ(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
	EQ(wc.invalidated_rkey, mw->rkey);
	WORKS(p.a.scq, 2);
	NEED(through(&p, 3, IBV_WR_RDMA_READ, mw->rkey, 0, 8) == 0);
	COMPLETES(p.a.scq, 3, IBV_WC_REM_ACCESS_ERR);
}

CASE("window-2.invalidated-locally-and-bound-again")
{
	struct pair p;
	struct ibv_mw *mw = window(&p, 2);
	struct ibv_mr *mr = bindable(&p.b);

	NEED(bind_over(&p, mw, mr, 0, 64, RR) == 0);
	WORKS(p.b.scq, 50);
	struct ibv_send_wr wr = {.wr_id = 51, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED,
				 .invalidate_rkey = mw->rkey}, *bad;
	NEED(ibv_post_send(p.b.qp, &wr, &bad) == 0);
	EQ(WORKS(p.b.scq, 51).opcode, IBV_WC_LOCAL_INV);
	NEED(bind_over(&p, mw, mr, 0, 64, RR) == 0);
	WORKS(p.b.scq, 50);
	NEED(through(&p, 1, IBV_WR_RDMA_READ, mw->rkey, 0, 8) == 0);
	WORKS(p.a.scq, 1);
}

CASE("window-2.not-bound-while-it-is")
{
	struct pair p;
	struct ibv_mw *mw = window(&p, 2);
	struct ibv_mr *mr = bindable(&p.b);

	NEED(bind_over(&p, mw, mr, 0, 64, RR) == 0);
	WORKS(p.b.scq, 50);
	bad_bind(&p, mw, mr, 64, 64, RR);
}
