/* Writes and reads into the other end's memory: what a region lets a peer do, and what it does not. */
#include "env.h"

/* The status a refused request has at its sender. iWARP tells of a refused Write only by ending the connection. */
static void refused(struct pair *p, uint64_t id, bool read)
{
	struct ibv_wc wc = {};

	if (!CHECKF(reap(p->a.scq, &wc), "no completion in time"))
		return;
	EQ(wc.wr_id, id);
	if (env.iwarp && !read)
		CHECKF(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_ACCESS_ERR ||
			       wc.status == IBV_WC_WR_FLUSH_ERR,
		       "status %s", ibv_wc_status_str(wc.status));
	else
		CHECKF(wc.status == IBV_WC_REM_ACCESS_ERR, "status %s", ibv_wc_status_str(wc.status));
	CHECK(becomes(p->a.qp, IBV_QPS_ERR));
	CHECK(becomes(p->b.qp, IBV_QPS_ERR));
}

static bool untouched(const struct side *s, size_t length)
{
	return untouched_but(s, length, 0, 0);
}

/* --- ranges around a region of 4096 octets at 4096 of b's buffer */

static const struct {
	const char *name;
	long offset;
	uint32_t length;
	bool good;
} ranges[] = {
	{"all-of-it", 0, 4096, true},	      {"the-first-octet", 0, 1, true},
	{"the-last-octet", 4095, 1, true},    {"from-one-before", -1, 8, false},
	{"to-one-past-the-end", 0, 4097, false}, {"the-octet-before", -1, 1, false},
	{"the-octet-after", 4096, 1, false},  {"far-outside", 1 << 20, 8, false},
	{"across-the-end", 4090, 7, false},
};

static void range(long both)
{
	bool read = both & 1;
	long at = both >> 1;
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.buf + 4096, 4096, LW | RW | RR);
	NEED(mr);
	fill(read ? p.b.buf : p.a.buf, 16384, 3);
	struct ibv_sge list = sge(&p.a, 0, ranges[at].length);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1,
				 .opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)p.b.buf + 4096 + (unsigned long)ranges[at].offset, mr->rkey}},
			   *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	if (ranges[at].good) {
		WORKS(p.a.scq, 1);
		NEED(post_recv(&p.b, 2, 65536, 8) == 0);
		NEED(send_of(&p.a, 3, IBV_SEND_SIGNALED, 0, 1) == 0);
		WORKS(p.b.rcq, 2);
		SAME(p.a.buf, p.b.buf + 4096 + ranges[at].offset, ranges[at].length);
		EQ(ibv_dereg_mr(mr), 0);
		pair_down(&p);
		return;
	}
	refused(&p, 1, read);
	/* A Read is refused whole. */
	bool in_parts = !read && ranges[at].length > ONE_SEGMENT;
	untouched_but(read ? &p.a : &p.b, 16384, 4096, in_parts ? 4096 : 0);
}

CASES
{
	for (long i = 0; i < (long)(sizeof(ranges) / sizeof(*ranges)); i++) {
		ADD(range, 2 * i, "remote.write-%s", ranges[i].name);
		ADD(range, 2 * i + 1, "remote.read-%s", ranges[i].name);
	}
}

/* --- rights of the region */

static const struct {
	const char *name;
	int access;
	bool write, read;
} kinds[] = {
	{"none", 0, false, false},
	{"local-write", LW, false, false},
	{"remote-read", RR, false, true},
	{"local-write-and-remote-read", LW | RR, false, true},
	{"remote-write", LW | RW, true, false},
	{"remote-write-and-read", LW | RW | RR, true, true},
};

static void right(long both)
{
	bool read = both & 1;
	long at = both >> 1;
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.buf, 4096, kinds[at].access);
	NEED(mr);
	memset(read ? p.b.buf : p.a.buf, 0x55, 64);
	struct ibv_sge list = sge(&p.a, 0, 64);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1,
				 .opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)p.b.buf, mr->rkey}}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	if (read ? kinds[at].read : kinds[at].write) {
		WORKS(p.a.scq, 1);
		CHECK(read ? p.a.buf[63] == 0x55 : 1);
		return;
	}
	refused(&p, 1, read);
	untouched(read ? &p.a : &p.b, 4096);
}

CASES
{
	for (long i = 0; i < (long)(sizeof(kinds) / sizeof(*kinds)); i++) {
		ADD(right, 2 * i, "remote.write-with-rights-%s", kinds[i].name);
		ADD(right, 2 * i + 1, "remote.read-with-rights-%s", kinds[i].name);
	}
}

/* --- keys */

enum key { OFF_BY_ONE, OTHER_KEY_PART, OF_ZERO, OF_A_DEAD_REGION, OF_ANOTHER_DOMAIN, OF_THE_SENDER, KEYS };
static const char *const keys[] = {"off-by-one-index", "with-another-key-part", "of-zero", "of-a-dead-region",
				   "of-another-domain", "of-the-sender"};

static void wrong_key(long both)
{
	bool read = both & 1;
	struct pair p;
	uint32_t key;
	struct ibv_mr *mr;
	struct ibv_pd *pd;

	pair_up(&p, (struct wish){});
	switch ((enum key)(both >> 1)) {
	case OFF_BY_ONE: key = p.b.mr->rkey + 0x100; break;
	case OTHER_KEY_PART: key = p.b.mr->rkey ^ 1; break;
	case OF_ZERO: key = 0; break;
	case OF_A_DEAD_REGION:
		NEED(mr = ibv_reg_mr(p.b.pd, p.b.buf, 4096, ALL_ACCESS));
		key = mr->rkey;
		NEED(ibv_dereg_mr(mr) == 0);
		break;
	case OF_ANOTHER_DOMAIN:
		NEED(pd = ibv_alloc_pd(p.b.ctx));
		NEED(mr = ibv_reg_mr(pd, p.b.buf, 4096, ALL_ACCESS));
		key = mr->rkey;
		break;
	default: key = p.a.mr->rkey; break;
	}
	memset(read ? p.b.buf : p.a.buf, 0x55, 64);
	struct ibv_sge list = sge(&p.a, 0, 64);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1,
				 .opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)p.b.buf, key}}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	refused(&p, 1, read);
	untouched(read ? &p.a : &p.b, 4096);
}

CASES
{
	for (long i = 0; i < KEYS; i++) {
		ADD(wrong_key, 2 * i, "remote.write-with-a-key-%s", keys[i]);
		ADD(wrong_key, 2 * i + 1, "remote.read-with-a-key-%s", keys[i]);
	}
}

/* A device that completes a Write when its octets are on their way says by what follows that it was refused. */
static const struct {
	const char *name;
	int access, offset;
	uint32_t key_off;
} lost_writes[] = {
	{"with-local-rights-only", LW, 0, 0},	   {"with-the-right-to-read", LW | RR, 0, 0},
	{"across-the-end", LW | RW | RR, 4090, 0}, {"before-the-start", LW | RW | RR, -8, 0},
	{"with-a-wrong-key", LW | RW | RR, 0, 0x1234},
};

static void lost_write(long at)
{
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.buf + 4096, 4096, lost_writes[at].access);
	NEED(mr);
	memset(p.a.buf, 0x55, 8);
	struct ibv_sge list = sge(&p.a, 0, 8);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)p.b.buf + 4096 + (unsigned long)lost_writes[at].offset,
					     mr->rkey + lost_writes[at].key_off}}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	post(&p.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 64, 8, &p.b, 0);
	struct ibv_wc first = {}, second = {};
	NEED(reap(p.a.scq, &first) && reap(p.a.scq, &second));
	CHECK(first.status != IBV_WC_SUCCESS || second.status != IBV_WC_SUCCESS);
	untouched(&p.b, 16384);
}

CASES
{
	for (long i = 0; i < (long)(sizeof(lost_writes) / sizeof(*lost_writes)); i++)
		ADD(lost_write, i, "remote.a-write-is-refused-or-what-follows-it-%s", lost_writes[i].name);
}

CASE("remote.write-wrapping-around-the-address-space-is-refused")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_sge list = sge(&p.a, 0, 64);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {UINT64_MAX - 31, p.b.mr->rkey}}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	refused(&p, 1, false);
}

CASE("remote.zero-octets-touch-nothing")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	p.b.buf[0] = 0xee;
	NEED(post(&p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 0, &p.b, 0) == 0);
	WORKS(p.a.scq, 1);
	NEED(post(&p.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 0, &p.b, 0) == 0);
	EQ(WORKS(p.a.scq, 2).byte_len, 0);
	EQ(p.b.buf[0], 0xee);
	pair_down(&p);
}

CASE("remote.a-fault-is-an-event-at-the-target")
{
	struct pair p;
	struct ibv_async_event event;

	pair_up(&p, (struct wish){});
	struct ibv_sge list = sge(&p.a, 0, 64);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)p.b.buf, p.b.mr->rkey + 0x100}}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	NEED(comes(p.b.ctx->async_fd));
	NEED(ibv_get_async_event(p.b.ctx, &event) == 0);
	/* a and b may share a context: each has its event. */
	CHECKF(event.event_type == IBV_EVENT_QP_ACCESS_ERR || event.event_type == IBV_EVENT_QP_REQ_ERR ||
		       event.event_type == IBV_EVENT_QP_FATAL,
	       "event %s", ibv_event_type_str(event.event_type));
	CHECK(event.element.qp == p.b.qp || event.element.qp == p.a.qp);
	ibv_ack_async_event(&event);
	if (!env.weft)
		return;
	while (event.event_type != IBV_EVENT_QP_ACCESS_ERR || event.element.qp != p.b.qp) {
		NEED(comes(p.b.ctx->async_fd));
		NEED(ibv_get_async_event(p.b.ctx, &event) == 0);
		ibv_ack_async_event(&event);
	}
}

CASE("remote.what-was-pending-at-the-target-is-flushed")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 5, 0, 64) == 0);
	struct ibv_sge list = sge(&p.a, 0, 64);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)p.b.buf, p.b.mr->rkey + 0x100}}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
	COMPLETES(p.b.rcq, 5, IBV_WC_WR_FLUSH_ERR);
}

/* --- a read's own elements */

CASE("read.into-several-elements")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	if (env.dev.max_sge_rd < 3)
		SKIP("the device reports max_sge_rd %d", env.dev.max_sge_rd);
	fill(p.b.buf, 300, 4);
	struct ibv_sge list[3] = {sge(&p.a, 0, 100), sge(&p.a, 100, 150), sge(&p.a, 250, 50)};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = list, .num_sge = 3, .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)p.b.buf, p.b.mr->rkey}}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	WORKS(p.a.scq, 1);
	CHECK(holds(p.a.buf, 300, 4));
	pair_down(&p);
}

CASE("read.into-more-elements-than-reads-have")
{
	struct pair p;

	if (env.dev.max_sge_rd >= env.dev.max_sge)
		SKIP("the device reports max_sge_rd %d, as many as for sends", env.dev.max_sge_rd);
	pair_up(&p, (struct wish){.sges = env.dev.max_sge});
	struct ibv_sge list[300];
	NEED(env.dev.max_sge < 300);
	for (int i = 0; i < env.dev.max_sge; i++)
		list[i] = sge(&p.a, (size_t)i, 1);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = list, .num_sge = env.dev.max_sge, .opcode = IBV_WR_RDMA_READ,
				 .wr.rdma = {(uintptr_t)p.b.buf, p.b.mr->rkey}}, *bad;
	int error = ibv_post_send(p.a.qp, &wr, &bad);
	if (!error) {
		struct ibv_wc wc = {};
		NEED(reap(p.a.scq, &wc));
		CHECK(wc.status == IBV_WC_LOC_QP_OP_ERR || wc.status == IBV_WC_LOC_LEN_ERR);
	} else {
		CHECK(error == EINVAL);
	}
}

CASE("read.and-a-write-of-what-was-read-in-one-list")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	fill(p.b.buf, 5000, 2);
	struct ibv_sge list = sge(&p.a, 0, 5000);
	struct ibv_send_wr wr[2] = {
		{.wr_id = 1, .next = &wr[1], .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		 .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)p.b.buf, p.b.mr->rkey}},
		{.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE,
		 .wr.rdma = {(uintptr_t)p.b.buf + 10000, p.b.mr->rkey}},
	};
	struct ibv_send_wr *bad;
	NEED(ibv_post_send(p.a.qp, wr, &bad) == 0);
	WORKS(p.a.scq, 1);
	WORKS(p.a.scq, 2);
	NEED(post_recv(&p.b, 3, 65536, 1) == 0);
	NEED(send_of(&p.a, 4, IBV_SEND_SIGNALED, 0, 1) == 0);
	WORKS(p.b.rcq, 3);
	CHECK(holds(p.b.buf + 10000, 5000, 2));
	pair_down(&p);
}

/* --- the queue pair's own rights */

static void queue_pair_rights(long read)
{
	need_infiniband();
	struct pair p = {};
	struct wish w = {};

	for (int i = 0; i < 2; i++) {
		struct side *s = i ? &p.b : &p.a;
		side_objects(s, &w, i);
		struct ibv_qp_init_attr init = init_of(s, &w);
		NEED(s->qp = ibv_create_qp(s->pd, &init));
	}
	connect_by_gid(p.a.qp, p.b.qp, read ? RW : RR);
	NEED(post(&p.a, 1, read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 64, &p.b, 0) == 0);
	COMPLETES(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR);
}

CASES
{
	ADD(queue_pair_rights, 0, "remote.write-to-a-queue-pair-without-the-right");
	ADD(queue_pair_rights, 1, "remote.read-from-a-queue-pair-without-the-right");
}

/* --- registration while used */

CASE("remote.a-dead-key-stays-dead-when-the-memory-is-registered-again")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.buf, 4096, ALL_ACCESS);
	NEED(mr);
	uint32_t old = mr->rkey;
	NEED(ibv_dereg_mr(mr) == 0);
	NEED(mr = ibv_reg_mr(p.b.pd, p.b.buf, 4096, ALL_ACCESS));
	struct ibv_sge list = sge(&p.a, 0, 64);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)p.b.buf, old}}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	refused(&p, 1, true);
}

CASE("remote.deregistered-under-a-stream-of-writes")
{
	struct pair p;
	uint64_t posted = 0;

	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.buf, 1 << 20, ALL_ACCESS);
	NEED(mr);
	struct ibv_sge list = sge(&p.a, 0, 1 << 20);
	struct ibv_send_wr wr = {.sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)p.b.buf, mr->rkey}}, *bad;
	for (; posted < 20; posted++) {
		wr.wr_id = posted;
		NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	}
	NEED(ibv_dereg_mr(mr) == 0);
	/* From here on nothing is written: the memory is the program's again. */
	memset(p.b.buf, 0xaa, 1 << 20);
	wr.wr_id = posted++;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	for (uint64_t i = 0; i < posted; i++) {
		struct ibv_wc wc = {};
		NEED(reap(p.a.scq, &wc));
		EQ(wc.wr_id, i);
	}
	CHECK(becomes(p.b.qp, IBV_QPS_ERR));
	for (int i = 0; i < 1 << 20; i++)
		if (p.b.buf[i] != 0xaa) {
			CHECKF(false, "octet %d was written after ibv_dereg_mr", i);
			break;
		}
}

/* --- invalidation */

static bool has_invalidation(void)
{
	return env.dev.device_cap_flags & (IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2A |
					   IBV_DEVICE_MEM_WINDOW_TYPE_2B);
}

CASE("invalidate.by-a-send")
{
	struct pair p;

	if (!has_invalidation())
		SKIP("the device reports no invalidation (device_cap_flags)");
	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.buf, 4096, ALL_ACCESS);
	NEED(mr);
	NEED(post_recv(&p.b, 1, 65536, 64) == 0);
	struct ibv_sge list = sge(&p.a, 0, 8);
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV,
				 .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = mr->rkey}, *bad;
	int error = ibv_post_send(p.a.qp, &wr, &bad);
	if (says_unsupported(error) || error == EINVAL)
		SKIP("the device refuses IBV_WR_SEND_WITH_INV (%s)", strerror(error));
	EQ(error, 0);
	struct ibv_wc wc = {};
	NEED(reap(p.b.rcq, &wc));
	/* Some devices invalidate windows only: the key of a whole region ends the connection. */
	if (wc.status != IBV_WC_SUCCESS) {
		CHECKF(wc.status == IBV_WC_LOC_PROT_ERR || wc.status == IBV_WC_WR_FLUSH_ERR ||
			       wc.status == IBV_WC_MW_BIND_ERR || wc.status == IBV_WC_LOC_QP_OP_ERR,
		       "status %s", ibv_wc_status_str(wc.status));
		return;
	}
	EQ(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
	EQ(wc.invalidated_rkey, mr->rkey);
	WORKS(p.a.scq, 2);
	list = sge(&p.a, 0, 8);
	wr = (struct ibv_send_wr){.wr_id = 3, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
				  .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)p.b.buf, mr->rkey}};
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	refused(&p, 3, true);
	EQ(ibv_dereg_mr(mr), 0);
}

CASE("invalidate.a-key-of-nothing-ends-the-connection")
{
	struct pair p;

	if (!has_invalidation())
		SKIP("the device reports no invalidation (device_cap_flags)");
	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 65536, 64) == 0);
	struct ibv_sge list = sge(&p.a, 0, 8);
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV,
				 .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = p.b.mr->rkey + 0x100}, *bad;
	int error = ibv_post_send(p.a.qp, &wr, &bad);
	if (says_unsupported(error) || error == EINVAL)
		SKIP("the device refuses IBV_WR_SEND_WITH_INV (%s)", strerror(error));
	EQ(error, 0);
	struct ibv_wc wc = {};
	NEED(reap(p.b.rcq, &wc));
	CHECK(wc.status != IBV_WC_SUCCESS);
	CHECK(becomes(p.b.qp, IBV_QPS_ERR));
}

CASE("invalidate.locally")
{
	struct pair p;

	if (!has_invalidation())
		SKIP("the device reports no invalidation (device_cap_flags)");
	pair_up(&p, (struct wish){});
	struct ibv_mr *mr = ibv_reg_mr(p.a.pd, p.a.buf, 4096, ALL_ACCESS);
	NEED(mr);
	struct ibv_send_wr wr = {.wr_id = 1, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED,
				 .invalidate_rkey = mr->rkey}, *bad;
	/* It has no elements, whatever the request says of them. */
	if (env.weft)
		wr.num_sge = 12345;
	int error = ibv_post_send(p.a.qp, &wr, &bad);
	if (says_unsupported(error) || error == EINVAL)
		SKIP("the device refuses IBV_WR_LOCAL_INV (%s)", strerror(error));
	EQ(error, 0);
	struct ibv_wc wc = {};
	NEED(reap(p.a.scq, &wc));
	if (wc.status != IBV_WC_SUCCESS)
		SKIP("the device invalidates no whole region (%s)", ibv_wc_status_str(wc.status));
	EQ(wc.opcode, IBV_WC_LOCAL_INV);
	struct ibv_sge list = {(uintptr_t)p.a.buf, 8, mr->lkey};
	wr = (struct ibv_send_wr){.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED};
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	COMPLETES(p.a.scq, 2, IBV_WC_LOC_PROT_ERR);
	EQ(ibv_dereg_mr(mr), 0);
}
