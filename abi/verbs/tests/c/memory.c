/* Memory regions: what may be registered, and what each right lets the two sides do. */
#include <sys/mman.h>

#include "pair.h"

enum { LW = IBV_ACCESS_LOCAL_WRITE, RW = IBV_ACCESS_REMOTE_WRITE, RR = IBV_ACCESS_REMOTE_READ };

static struct ibv_mr *of(struct side *s, void *at, size_t length, unsigned access)
{
	return ibv_reg_mr(s->pd, at, length, access);
}

/* Memory far from where the kernel maps next: once it is unmapped, nothing else comes to lie there. */
static unsigned char *apart(size_t length)
{
	void *at = (void *)(1UL << 45);

	NEED(mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == at);
	return at;
}

static void registering(struct side *s)
{
	static unsigned char memory[65536];
	struct ibv_mr *mr, *other;
	unsigned access = LW | RW | RR | IBV_ACCESS_RELAXED_ORDERING;

	begin_case("a region says what it covers");
	NEED(mr = of(s, memory, 100, LW));
	CHECK(mr->addr == memory && mr->length == 100 && mr->pd == s->pd && mr->context == s->pd->context);
	CHECK(mr->lkey != 0 && mr->rkey != 0);

	begin_case("keys differ");
	NEED(other = of(s, memory, 100, LW));
	CHECK(other->rkey != mr->rkey);
	EQUAL(ibv_dereg_mr(other), 0);
	EQUAL(ibv_dereg_mr(mr), 0);

	begin_case("optional rights are hints");
	NEED(mr = of(s, memory, 100, access));
	EQUAL(ibv_dereg_mr(mr), 0);
	NEED(mr = of(s, memory, 100, LW | IBV_ACCESS_HUGETLB));
	EQUAL(ibv_dereg_mr(mr), 0);

	begin_case("rights that contradict each other");
	IS_NULL(of(s, memory, 100, RW), EINVAL);
	IS_NULL(of(s, memory, 100, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	IS_NULL(of(s, memory, 100, 1 << 15), EINVAL);
	IS_NULL(of(s, memory, 100, LW | IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);

	begin_case("ranges");
	IS_NULL(of(s, memory, 0, LW), EINVAL);
	IS_NULL(of(s, (void *)-4096, 8192, LW), EINVAL);
	unsigned char *map = apart(1 << 20);
	munmap(map + (1 << 19), 1 << 19);
	IS_NULL(of(s, map, 1 << 20, LW), EFAULT);
	IS_NULL(of(s, map + (1 << 19), 16, LW), EFAULT);
	IS_NULL(of(s, NULL, 4096, LW), EFAULT);
	NEED(mr = of(s, map, 1 << 19, LW));
	EQUAL(ibv_dereg_mr(mr), 0);
	munmap(map, 1 << 19);

	begin_case("read-only memory may be sent from");
	map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(mr = of(s, map, 4096, RR));
	EQUAL(ibv_dereg_mr(mr), 0);
	munmap(map, 4096);
}

/* One operation by `a` on a region of `b` with these rights: the status it ends with. */
static int attempt(enum ibv_wr_opcode opcode, unsigned access, size_t offset, size_t length, int wrong_key)
{
	static unsigned char memory[4096];
	struct pair p;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	pair_up(&p, (struct wishes){});
	NEED(mr = of(&p.b, memory, sizeof(memory), access));
	struct ibv_sge sge = sge_of(&p.a, 0, length);
	struct ibv_send_wr wr = {.opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + offset;
	wr.wr.rdma.rkey = mr->rkey + (wrong_key ? 0x1234 : 0);
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	/* A Write completes when it is on its way; what follows it tells whether it was taken. */
	post(&p.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 0, 8, &p.b, 0);
	EQUAL(reap(p.a.send_cq, &wc), 1);
	int first = wc.status;
	EQUAL(reap(p.a.send_cq, &wc), 1);
	EQUAL(ibv_dereg_mr(mr), 0);
	pair_down(&p);
	return first ? first : (int)wc.status;
}

static void rights(void)
{
	begin_case("a Write needs remote write");
	EQUAL(attempt(IBV_WR_RDMA_WRITE, LW | RW, 0, 4096, 0), IBV_WC_SUCCESS);
	CHECK(attempt(IBV_WR_RDMA_WRITE, LW, 0, 8, 0) != IBV_WC_SUCCESS);
	CHECK(attempt(IBV_WR_RDMA_WRITE, LW | RR, 0, 8, 0) != IBV_WC_SUCCESS);

	begin_case("a Read needs remote read");
	EQUAL(attempt(IBV_WR_RDMA_READ, RR, 0, 4096, 0), IBV_WC_SUCCESS);
	EQUAL(attempt(IBV_WR_RDMA_READ, LW | RW, 0, 8, 0), IBV_WC_REM_ACCESS_ERR);

	begin_case("nothing outside the region");
	CHECK(attempt(IBV_WR_RDMA_WRITE, LW | RW, 4090, 8, 0) != IBV_WC_SUCCESS);
	CHECK(attempt(IBV_WR_RDMA_WRITE, LW | RW, -8, 8, 0) != IBV_WC_SUCCESS);
	EQUAL(attempt(IBV_WR_RDMA_READ, RR, 4090, 8, 0), IBV_WC_REM_ACCESS_ERR);

	begin_case("nothing with a wrong key");
	CHECK(attempt(IBV_WR_RDMA_WRITE, LW | RW, 0, 8, 1) != IBV_WC_SUCCESS);
	EQUAL(attempt(IBV_WR_RDMA_READ, RR, 0, 8, 1), IBV_WC_REM_ACCESS_ERR);
}

static void local_rights(void)
{
	struct pair p;
	struct ibv_mr *no_write;
	struct ibv_wc wc;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	begin_case("a Read's target needs local write");
	pair_up(&p, (struct wishes){});
	NEED(no_write = of(&p.a, p.a.buffer, 4096, RR));
	sge = (struct ibv_sge){(uintptr_t)p.a.buffer, 8, no_write->lkey};
	wr = (struct ibv_send_wr){
		.opcode = IBV_WR_RDMA_READ, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)p.b.buffer;
	wr.wr.rdma.rkey = p.b.mr->rkey;
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	EQUAL(reap(p.a.send_cq, &wc), 1);
	EQUAL(wc.status, IBV_WC_LOC_PROT_ERR);
	EQUAL(ibv_dereg_mr(no_write), 0);
	pair_down(&p);

	begin_case("a send outside its region");
	pair_up(&p, (struct wishes){});
	sge = sge_of(&p.a, BUFFER - 4, 8);
	wr = (struct ibv_send_wr){
		.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	EQUAL(reap(p.a.send_cq, &wc), 1);
	EQUAL(wc.status, IBV_WC_LOC_PROT_ERR);
	pair_down(&p);

	begin_case("a key of another domain");
	pair_up(&p, (struct wishes){});
	sge = (struct ibv_sge){(uintptr_t)p.b.buffer, 8, p.b.mr->lkey};
	wr = (struct ibv_send_wr){
		.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	EQUAL(reap(p.a.send_cq, &wc), 1);
	EQUAL(wc.status, IBV_WC_LOC_PROT_ERR);
	pair_down(&p);
}

static void address_spaces(void)
{
	static unsigned char memory[4096];
	struct pair p;
	struct ibv_mr *mr;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	static const struct {
		const char *name;
		unsigned access;
		uint64_t base;
	} kinds[] = {
		{"a region from zero", LW | RW | RR | IBV_ACCESS_ZERO_BASED, 0},
		{"a region from where the program says", LW | RW | RR, 0x1234567000},
	};

	for (int i = 0; i < 2; i++) {
		begin_case(kinds[i].name);
		pair_up(&p, (struct wishes){});
		memset(memory, 0, sizeof(memory));
		if (i == 0)
			NEED(mr = ibv_reg_mr(p.b.pd, memory, sizeof(memory), kinds[i].access));
		else
			NEED(mr = ibv_reg_mr_iova(p.b.pd, memory, sizeof(memory), kinds[i].base, kinds[i].access));
		fill(p.a.buffer, 64, 9);
		sge = sge_of(&p.a, 0, 64);
		wr = (struct ibv_send_wr){
			.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};
		wr.wr.rdma.remote_addr = kinds[i].base + 100;
		wr.wr.rdma.rkey = mr->rkey;
		EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
		sge = sge_of(&p.a, 1000, 64);
		wr.opcode = IBV_WR_RDMA_READ;
		wr.send_flags = IBV_SEND_SIGNALED;
		EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
		COMPLETES(p.a.send_cq, 0, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
		CHECK(holds(memory + 100, 64, 9));
		CHECK(holds(p.a.buffer + 1000, 64, 9));
		EQUAL(ibv_dereg_mr(mr), 0);
		pair_down(&p);
	}
}

static void again(void)
{
	static unsigned char one[4096], two[8192];
	struct pair p;
	struct ibv_mr *mr;
	uint32_t old;

	pair_up(&p, (struct wishes){});
	begin_case("registering again with other rights");
	NEED(mr = of(&p.b, one, sizeof(one), LW));
	old = mr->rkey;
	EQUAL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, LW | RW), 0);
	CHECK(mr->addr == one && mr->length == sizeof(one));
	struct side other = p.b;
	other.mr = mr;
	other.buffer = one;
	fill(p.a.buffer, 32, 3);
	EQUAL(post(&p.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, 32, &other, 8), 0);
	COMPLETES(p.a.send_cq, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	EQUAL(post(&p.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 64, 8, &p.b, 0), 0);
	COMPLETES(p.a.send_cq, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	CHECK(holds(one + 8, 32, 3));

	begin_case("registering again over other memory");
	EQUAL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, two, sizeof(two), 0), 0);
	CHECK(mr->addr == two && mr->length == sizeof(two));

	begin_case("a wrong second registration leaves the first");
	MINUS_ONE(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), EINVAL);
	MINUS_ONE(ibv_rereg_mr(mr, 1 << 7, NULL, NULL, 0, 0), EINVAL);
	MINUS_ONE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW), EINVAL);
	MINUS_ONE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 4096, 0), EFAULT);
	CHECK(mr->addr == two && mr->length == sizeof(two));

	begin_case("the first key is dead");
	CHECK(mr->rkey != old);
	struct ibv_sge sge = sge_of(&p.a, 0, 8);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)one, old}},
			   *bad;
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	COMPLETES(p.a.send_cq, 0, IBV_WC_REM_ACCESS_ERR, 0);
	EQUAL(ibv_dereg_mr(mr), 0);
	pair_down(&p);
}

static void unmapped(void)
{
	struct pair p;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	unsigned char *map = apart(8192);

	begin_case("memory unmapped under its registration is an error, not a signal");
	pair_up(&p, (struct wishes){});
	NEED(mr = of(&p.a, map, 8192, LW));
	munmap(map, 8192);
	struct ibv_sge sge = {(uintptr_t)map, 100, mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	EQUAL(reap(p.a.send_cq, &wc), 1);
	CHECK(wc.status != IBV_WC_SUCCESS);
	EQUAL(ibv_dereg_mr(mr), 0);
	pair_down(&p);
}

int main(void)
{
	struct ibv_context **devices = rdma_get_devices(NULL);
	struct side s = {};

	NEED(devices && devices[0]);
	NEED(s.pd = ibv_alloc_pd(devices[0]));
	registering(&s);
	begin_case("a domain with a region is in use");
	struct ibv_mr *mr = ibv_reg_mr(s.pd, &s, sizeof(s), 0);
	EQUAL(ibv_dealloc_pd(s.pd), EBUSY);
	EQUAL(ibv_dereg_mr(mr), 0);
	EQUAL(ibv_dealloc_pd(s.pd), 0);
	rdma_free_devices(devices);
	rights();
	local_rights();
	address_spaces();
	again();
	unmapped();
	end_program();
}
