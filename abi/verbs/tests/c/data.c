/* Octets from one side to the other, by every operation, and checked. */
#include "pair.h"

static struct pair p;

#define SEND IBV_WR_SEND
#define WRITE IBV_WR_RDMA_WRITE
#define READ IBV_WR_RDMA_READ
#define SIGNALED IBV_SEND_SIGNALED

static const size_t lengths[] = {0, 1, 7, 8, 64, 1000, 1448, 4096, 65535, 65536, 65537, 300000};
enum { LENGTHS = sizeof(lengths) / sizeof(*lengths) };

static void sends(void)
{
	struct ibv_wc wc;

	begin_case("Sends of many sizes");
	for (int i = 0; i < LENGTHS; i++) {
		size_t length = lengths[i];
		memset(p.b.buffer, 0, length);
		fill(p.a.buffer, length, i);
		EQUAL(post_recv(&p.b, 100 + i, 0, length + 16), 0);
		EQUAL(post(&p.a, 200 + i, IBV_WR_SEND, SIGNALED, 0, length, NULL, 0), 0);
		COMPLETES(p.a.send_cq, 200 + i, IBV_WC_SUCCESS, IBV_WC_SEND);
		EQUAL(reap(p.b.recv_cq, &wc), 1);
		EQUAL(wc.wr_id, 100 + i);
		EQUAL(wc.status, IBV_WC_SUCCESS);
		EQUAL(wc.opcode, IBV_WC_RECV);
		EQUAL(wc.byte_len, length);
		EQUAL(wc.wc_flags, 0);
		EQUAL(wc.qp_num, p.b.qp->qp_num);
		CHECK(holds(p.b.buffer, length, i));
	}

	begin_case("the passive side sends too");
	fill(p.b.buffer, 500, 77);
	EQUAL(post_recv(&p.a, 1, 0, 500), 0);
	EQUAL(post(&p.b, 2, IBV_WR_SEND, SIGNALED, 0, 500, NULL, 0), 0);
	COMPLETES(p.a.recv_cq, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
	COMPLETES(p.b.send_cq, 2, IBV_WC_SUCCESS, IBV_WC_SEND);
	CHECK(holds(p.a.buffer, 500, 77));
}

/* A Write is there when a Send behind it is. */
static void message_behind(uint64_t id)
{
	EQUAL(post_recv(&p.b, id, BUFFER - 8, 8), 0);
	EQUAL(post(&p.a, id, IBV_WR_SEND, 0, 0, 8, NULL, 0), 0);
	COMPLETES(p.b.recv_cq, id, IBV_WC_SUCCESS, IBV_WC_RECV);
}

static void writes_and_reads(void)
{
	struct ibv_wc wc;

	begin_case("Writes of many sizes");
	for (int i = 0; i < LENGTHS; i++) {
		memset(p.b.buffer, 0, lengths[i] + 4096);
		fill(p.a.buffer, lengths[i], i + 3);
		EQUAL(post(&p.a, i, WRITE, SIGNALED, 0, lengths[i], &p.b, 1024), 0);
		COMPLETES(p.a.send_cq, i, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		message_behind(50);
		CHECK(holds(p.b.buffer + 1024, lengths[i], i + 3));
		EQUAL(p.b.buffer[1023], 0);
		EQUAL(p.b.buffer[1024 + lengths[i]], 0);
	}

	begin_case("Reads of many sizes");
	for (int i = 0; i < LENGTHS; i++) {
		memset(p.a.buffer, 0, lengths[i] + 4096);
		fill(p.b.buffer, lengths[i], i + 9);
		EQUAL(post(&p.a, i, READ, SIGNALED, 512, lengths[i], &p.b, 0), 0);
		EQUAL(reap(p.a.send_cq, &wc), 1);
		EQUAL(wc.wr_id, i);
		EQUAL(wc.status, IBV_WC_SUCCESS);
		EQUAL(wc.opcode, IBV_WC_RDMA_READ);
		EQUAL(wc.byte_len, lengths[i]);
		CHECK(holds(p.a.buffer + 512, lengths[i], i + 9));
		EQUAL(p.a.buffer[511], 0);
		EQUAL(p.a.buffer[512 + lengths[i]], 0);
	}

	begin_case("more Reads than may be outstanding");
	fill(p.b.buffer, 65536, 21);
	memset(p.a.buffer, 0, 65536);
	for (int i = 0; i < 60; i++)
		EQUAL(post(&p.a, i, READ, SIGNALED, i * 1000, 1000, &p.b, i * 1000), 0);
	for (int i = 0; i < 60; i++)
		COMPLETES(p.a.send_cq, i, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	CHECK(holds(p.a.buffer, 60000, 21));
}

static void lists(void)
{
	struct ibv_sge from[16], to[16];
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = from, .num_sge = 16, .opcode = SEND, .send_flags = SIGNALED},
			   *bad;
	struct ibv_recv_wr recv = {.wr_id = 2, .sg_list = to, .num_sge = 16}, *bad_recv;
	size_t total = 0, room = 0;
	unsigned char expected[16 * 2000], got[16 * 2100];

	begin_case("lists of 16 elements, gathered and scattered");
	memset(p.b.buffer, 0, 200000);
	fill(p.a.buffer, 200000, 5);
	for (int i = 0; i < 16; i++) {
		from[i] = sge_of(&p.a, i * 3000, 100 * i + 1);
		memcpy(expected + total, p.a.buffer + i * 3000, 100 * i + 1);
		total += 100 * i + 1;
		to[i] = sge_of(&p.b, i * 4000, 2000 - 110 * i);
	}
	EQUAL(ibv_post_recv(p.b.qp, &recv, &bad_recv), 0);
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	COMPLETES(p.a.send_cq, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	struct ibv_wc wc;
	EQUAL(reap(p.b.recv_cq, &wc), 1);
	EQUAL(wc.status, IBV_WC_SUCCESS);
	EQUAL(wc.byte_len, total);
	for (int i = 0; i < 16 && room < total; i++) {
		memcpy(got + room, p.b.buffer + i * 4000, to[i].length);
		room += to[i].length;
	}
	CHECK(room >= total && !memcmp(got, expected, total));

	begin_case("a Write and a Read with lists");
	wr.opcode = WRITE;
	wr.wr.rdma.remote_addr = (uintptr_t)p.b.buffer + 500000;
	wr.wr.rdma.rkey = p.b.mr->rkey;
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	COMPLETES(p.a.send_cq, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	message_behind(3);
	CHECK(!memcmp(p.b.buffer + 500000, expected, total));
	memset(p.a.buffer, 0, 200000);
	wr.opcode = READ;
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	COMPLETES(p.a.send_cq, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	for (int i = 0, at = 0; i < 16; i++) {
		CHECK(!memcmp(p.a.buffer + i * 3000, expected + at, from[i].length));
		at += from[i].length;
	}

	begin_case("a posted list leaves in order");
	struct ibv_send_wr wrs[32];
	fill(p.a.buffer, 32 * 64, 8);
	for (int i = 0; i < 32; i++) {
		from[0] = sge_of(&p.a, 0, 64);
		EQUAL(post_recv(&p.b, i, i * 64, 64), 0);
	}
	struct ibv_sge sges[32];
	for (int i = 0; i < 32; i++) {
		sges[i] = sge_of(&p.a, i * 64, 64);
		wrs[i] = (struct ibv_send_wr){.wr_id = i,
					      .next = i < 31 ? &wrs[i + 1] : NULL,
					      .sg_list = &sges[i],
					      .num_sge = 1,
					      .opcode = SEND,
					      .send_flags = SIGNALED};
	}
	EQUAL(ibv_post_send(p.a.qp, wrs, &bad), 0);
	for (int i = 0; i < 32; i++)
		COMPLETES(p.a.send_cq, i, IBV_WC_SUCCESS, IBV_WC_SEND);
	for (int i = 0; i < 32; i++)
		COMPLETES(p.b.recv_cq, i, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK(holds(p.b.buffer, 32 * 64, 8));
}

static void inline_data(void)
{
	unsigned char text[64];
	struct ibv_sge sges[2] = {{(uintptr_t)text, 40, 0}, {(uintptr_t)text + 40, 24, 0xdeadbeef}};
	struct ibv_send_wr wr = {.wr_id = 4,
				 .sg_list = sges,
				 .num_sge = 2,
				 .opcode = SEND,
				 .send_flags = SIGNALED | IBV_SEND_INLINE},
			   *bad;

	begin_case("inline data needs no key, and is free when posted");
	fill(text, sizeof(text), 30);
	EQUAL(post_recv(&p.b, 5, 0, 64), 0);
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	memset(text, 0, sizeof(text));
	COMPLETES(p.a.send_cq, 4, IBV_WC_SUCCESS, IBV_WC_SEND);
	COMPLETES(p.b.recv_cq, 5, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK(holds(p.b.buffer, 64, 30));

	begin_case("an inline Write");
	fill(text, sizeof(text), 31);
	wr.opcode = WRITE;
	wr.wr.rdma.remote_addr = (uintptr_t)p.b.buffer + 4000;
	wr.wr.rdma.rkey = p.b.mr->rkey;
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	memset(text, 0, sizeof(text));
	COMPLETES(p.a.send_cq, 4, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	message_behind(6);
	CHECK(holds(p.b.buffer + 4000, 64, 31));

	begin_case("inline and without a list");
	wr.opcode = SEND;
	wr.num_sge = 0;
	wr.sg_list = NULL;
	EQUAL(post_recv(&p.b, 7, 0, 64), 0);
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	COMPLETES(p.a.send_cq, 4, IBV_WC_SUCCESS, IBV_WC_SEND);
	struct ibv_wc wc;
	EQUAL(reap(p.b.recv_cq, &wc), 1);
	EQUAL(wc.byte_len, 0);
}

static void unsignaled(void)
{
	begin_case("unsignalled work completes in silence");
	for (int i = 0; i < 5; i++)
		EQUAL(post(&p.a, i, WRITE, 0, 0, 64, &p.b, 0), 0);
	CHECK(quiet(p.a.send_cq, 30));
	EQUAL(post(&p.a, 9, WRITE, SIGNALED, 0, 64, &p.b, 0), 0);
	COMPLETES(p.a.send_cq, 9, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);

	begin_case("unsignalled work gives its places back");
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 31; i++)
			EQUAL(post(&p.a, i, WRITE, 0, 0, 64, &p.b, 0), 0);
		EQUAL(post(&p.a, 100 + round, WRITE, SIGNALED, 0, 64, &p.b, 0), 0);
		COMPLETES(p.a.send_cq, 100 + round, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	}

	begin_case("a Read that nobody hears of");
	message_behind(40);
	fill(p.b.buffer, 64, 61);
	EQUAL(post(&p.a, 1, READ, 0, 0, 64, &p.b, 0), 0);
	EQUAL(post(&p.a, 2, READ, SIGNALED, 128, 8, &p.b, 0), 0);
	COMPLETES(p.a.send_cq, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	CHECK(holds(p.a.buffer, 64, 61));
}

static void fence(void)
{
	begin_case("a fenced Send waits for the Read before it");
	for (int i = 0; i < 20; i++) {
		memset(p.a.buffer, 0, 8192);
		fill(p.b.buffer, 8192, i);
		EQUAL(post_recv(&p.b, 1, 100000, 8192), 0);
		EQUAL(post(&p.a, 2, READ, SIGNALED, 0, 8192, &p.b, 0), 0);
		EQUAL(post(&p.a, 3, SEND, SIGNALED | IBV_SEND_FENCE, 0, 8192, NULL, 0), 0);
		COMPLETES(p.a.send_cq, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
		COMPLETES(p.a.send_cq, 3, IBV_WC_SUCCESS, IBV_WC_SEND);
		COMPLETES(p.b.recv_cq, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
		/* What was sent is what was read. */
		CHECK(holds(p.b.buffer + 100000, 8192, i));
	}
}

static void order(void)
{
	begin_case("completions come in the order of the posts");
	EQUAL(post_recv(&p.b, 1, 0, 64), 0);
	EQUAL(post(&p.a, 1, WRITE, SIGNALED, 0, 100000, &p.b, 100000), 0);
	EQUAL(post(&p.a, 2, READ, SIGNALED, 0, 100000, &p.b, 100000), 0);
	EQUAL(post(&p.a, 3, SEND, SIGNALED, 0, 64, NULL, 0), 0);
	EQUAL(post(&p.a, 4, WRITE, SIGNALED, 0, 8, &p.b, 0), 0);
	COMPLETES(p.a.send_cq, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	COMPLETES(p.a.send_cq, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	COMPLETES(p.a.send_cq, 3, IBV_WC_SUCCESS, IBV_WC_SEND);
	COMPLETES(p.a.send_cq, 4, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	COMPLETES(p.b.recv_cq, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
}

static void invalidation(void)
{
	static unsigned char memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, memory, sizeof(memory),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	struct ibv_sge sge = sge_of(&p.a, 0, 32);
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND_WITH_INV,
				 .send_flags = SIGNALED},
			   *bad;
	struct ibv_wc wc;

	begin_case("a Send with Invalidate");
	NEED(mr);
	wr.invalidate_rkey = mr->rkey;
	fill(p.a.buffer, 32, 12);
	EQUAL(post_recv(&p.b, 2, 0, 64), 0);
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	COMPLETES(p.a.send_cq, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	EQUAL(reap(p.b.recv_cq, &wc), 1);
	EQUAL(wc.status, IBV_WC_SUCCESS);
	EQUAL(wc.wc_flags, IBV_WC_WITH_INV);
	EQUAL(wc.invalidated_rkey, mr->rkey);
	CHECK(holds(p.b.buffer, 32, 12));

	begin_case("what was invalidated is closed to the peer");
	wr = (struct ibv_send_wr){.wr_id = 3,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = READ,
				  .send_flags = SIGNALED,
				  .wr.rdma = {(uintptr_t)memory, mr->rkey}};
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	COMPLETES(p.a.send_cq, 3, IBV_WC_REM_ACCESS_ERR, 0);
	EQUAL(ibv_dereg_mr(mr), 0);
	end_case();
	pair_down(&p);

	begin_case("a local invalidation");
	pair_up(&p, (struct wishes){.inline_data = 64});
	NEED(mr = ibv_reg_mr(p.a.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE));
	wr = (struct ibv_send_wr){.wr_id = 5,
				  .opcode = IBV_WR_LOCAL_INV,
				  .send_flags = SIGNALED,
				  .invalidate_rkey = mr->rkey,
				  .num_sge = 12345};
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	COMPLETES(p.a.send_cq, 5, IBV_WC_SUCCESS, IBV_WC_LOCAL_INV);
	sge = (struct ibv_sge){(uintptr_t)memory, 8, mr->lkey};
	wr = (struct ibv_send_wr){.wr_id = 6, .sg_list = &sge, .num_sge = 1, .opcode = SEND, .send_flags = SIGNALED};
	EQUAL(ibv_post_send(p.a.qp, &wr, &bad), 0);
	COMPLETES(p.a.send_cq, 6, IBV_WC_LOC_PROT_ERR, 0);
	EQUAL(ibv_dereg_mr(mr), 0);
}

static void everything_signaled(void)
{
	struct pair q;

	begin_case("sq_sig_all signals everything");
	pair_up(&q, (struct wishes){.sig_all = 1});
	EQUAL(post(&q.a, 8, WRITE, 0, 0, 64, &q.b, 0), 0);
	COMPLETES(q.a.send_cq, 8, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	pair_down(&q);
}

/* The last octet of a Write is placed last: programs spin on it. */
static void last_octet(void)
{
	struct ibv_wc wc;

	begin_case("a Write seen by its last octet is whole");
	for (unsigned i = 1; i < 200; i++) {
		volatile unsigned char *last = p.b.buffer + 9999;
		double end = now() + PATIENCE / 1e3;
		memset(p.a.buffer, i, 10000);
		EQUAL(post(&p.a, i, WRITE, SIGNALED, 0, 10000, &p.b, 0), 0);
		while (*last != (unsigned char)i && now() < end)
			;
		EQUAL(p.b.buffer[0], i);
		EQUAL(p.b.buffer[5000], i);
		EQUAL(*last, i);
		EQUAL(reap(p.a.send_cq, &wc), 1);
	}
}

int main(void)
{
	pair_up(&p, (struct wishes){.inline_data = 64});
	sends();
	writes_and_reads();
	lists();
	inline_data();
	unsignaled();
	fence();
	order();
	last_octet();
	invalidation();
	everything_signaled();
	end_case();
	pair_down(&p);
	end_program();
}
