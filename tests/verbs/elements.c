/* What a request is made of: elements and inline data. */
#include "env.h"

/* --- elements */

static void elements(long count)
{
	struct pair p;
	struct ibv_sge from[64], to[64];

	if (count > env.dev.max_sge || count > 64)
		SKIP("the device reports max_sge %d", env.dev.max_sge);
	pair_up(&p, (struct wish){.sges = (int)count});
	uint32_t total = 0;
	for (long i = 0; i < count; i++) {
		/* Odd sizes, and not one behind the other. */
		from[i] = sge(&p.a, 1000 * (size_t)i, (uint32_t)(i * 7 + 1));
		fill(p.a.buf + 1000 * i, from[i].length, (unsigned)i);
		to[i] = sge(&p.b, 500 * (size_t)(count - i), (uint32_t)(i * 7 + 1));
		total += from[i].length;
	}
	struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = to, .num_sge = (int)count}, *bad_recv;
	struct ibv_send_wr send = {.wr_id = 2, .sg_list = from, .num_sge = (int)count, .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED}, *bad_send;
	NEED(ibv_post_recv(p.b.qp, &recv, &bad_recv) == 0);
	NEED(ibv_post_send(p.a.qp, &send, &bad_send) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, total);
	WORKS(p.a.scq, 2);
	for (long i = 0; i < count; i++)
		CHECK(holds((uint8_t *)(uintptr_t)to[i].addr, to[i].length, (unsigned)i));
	pair_down(&p);
}

CASES
{
	static const int counts[] = {1, 2, 3, 4, 8, 16, 30, 32};

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
		ADD(elements, counts[i], "elements.%d", counts[i]);
}

/* Lists that are cut in other places than those of the other end: a send, a write and a read. */
CASE("elements.are-cut-elsewhere-at-the-other-end")
{
	enum { COUNT = 16, ROOM = 4000, WRITTEN = 1 << 20 };
	struct pair p;
	struct ibv_sge from[COUNT], to[COUNT];
	uint8_t expected[COUNT * 2000], got[COUNT * 2100];
	size_t total = 0, room = 0;

	if (env.dev.max_sge < COUNT)
		SKIP("the device reports max_sge %d", env.dev.max_sge);
	pair_up(&p, (struct wish){.sges = COUNT});
	fill(p.a.buf, 200000, 5);
	for (size_t i = 0; i < COUNT; i++) {
		from[i] = sge(&p.a, i * 3000, 100 * (uint32_t)i + 1);
		memcpy(expected + total, p.a.buf + i * 3000, from[i].length);
		total += from[i].length;
		to[i] = sge(&p.b, i * ROOM, 2000 - 110 * (uint32_t)i);
	}
	struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = to, .num_sge = COUNT}, *bad_recv;
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = from, .num_sge = COUNT, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;
	NEED(ibv_post_recv(p.b.qp, &recv, &bad_recv) == 0);
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	WORKS(p.a.scq, 2);
	EQ(WORKS(p.b.rcq, 1).byte_len, total);
	for (size_t i = 0; i < COUNT && room < total; i++) {
		memcpy(got + room, p.b.buf + i * ROOM, to[i].length);
		room += to[i].length;
	}
	NEED(room >= total);
	SAME(got, expected, total);
	if (env.dev.max_sge_rd < COUNT)
		SKIP("the device reports max_sge_rd %d", env.dev.max_sge_rd);
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = (uintptr_t)p.b.buf + WRITTEN;
	wr.wr.rdma.rkey = p.b.mr->rkey;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	WORKS(p.a.scq, 2);
	memset(p.a.buf, 0, 200000);
	wr.opcode = IBV_WR_RDMA_READ;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	WORKS(p.a.scq, 2);
	SAME(p.b.buf + WRITTEN, expected, total);
	for (size_t i = 0, at = 0; i < COUNT; at += from[i++].length)
		SAME(p.a.buf + i * 3000, expected + at, from[i].length);
	pair_down(&p);
}

CASE("elements.more-than-the-queue-pair-has-are-refused")
{
	struct pair p;

	pair_up(&p, (struct wish){.sges = 2});
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	NEED(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init) == 0);
	struct ibv_sge many[300];
	NEED(attr.cap.max_send_sge < 300);
	for (int i = 0; i < 300; i++)
		many[i] = sge(&p.a, 0, 1);
	struct ibv_send_wr wr = {.sg_list = many, .num_sge = (int)attr.cap.max_send_sge + 1, .opcode = IBV_WR_SEND},
			   *bad = NULL;
	CHECK(ibv_post_send(p.a.qp, &wr, &bad) != 0);
	CHECK(bad == &wr);
	pair_down(&p);
}

CASE("elements.of-zero-octets-among-others")
{
	struct pair p;

	pair_up(&p, (struct wish){.sges = 3});
	fill(p.a.buf, 20, 1);
	struct ibv_sge list[3] = {sge(&p.a, 0, 10), sge(&p.a, 0, 10), sge(&p.a, 10, 10)};
	list[1].length = 0;
	/* A length of 0 in an element means nothing here (it means 2^31 in the specification's wire form). */
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = list, .num_sge = 3, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, 20);
	CHECK(holds(p.b.buf, 20, 1));
	pair_down(&p);
}

/* --- inline data */

CASE("inline.is-taken-at-the-post")
{
	struct pair p;

	pair_up(&p, (struct wish){.inline_data = 32});
	fill(p.a.buf, 32, 6);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 32) == 0);
	memset(p.a.buf, 0, 32);
	WORKS(p.b.rcq, 1);
	CHECK(holds(p.b.buf, 32, 6));
	pair_down(&p);
}

CASE("inline.needs-no-key")
{
	struct pair p;
	char words[] = "not registered";

	pair_up(&p, (struct wish){.inline_data = 32});
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	struct ibv_sge list = {(uintptr_t)words, sizeof(words), 0xdeadbeef};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	WORKS(p.b.rcq, 1);
	SAME(p.b.buf, words, sizeof(words));
	pair_down(&p);
}

CASE("inline.in-a-write")
{
	struct pair p;

	pair_up(&p, (struct wish){.inline_data = 32});
	fill(p.a.buf, 32, 6);
	NEED(post(&p.a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 32, &p.b, 100) == 0);
	memset(p.a.buf, 0, 32);
	WORKS(p.a.scq, 2);
	NEED(post_recv(&p.b, 1, 0, 1) == 0);
	NEED(send_of(&p.a, 3, IBV_SEND_SIGNALED, 0, 1) == 0);
	WORKS(p.b.rcq, 1);
	CHECK(holds(p.b.buf + 100, 32, 6));
	pair_down(&p);
}

CASE("inline.more-than-there-is-room-is-refused")
{
	struct pair p;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	pair_up(&p, (struct wish){.inline_data = 16});
	NEED(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init) == 0);
	NEED(attr.cap.max_inline_data >= 16);
	struct ibv_sge list = sge(&p.a, 0, attr.cap.max_inline_data + 1);
	struct ibv_send_wr wr = {.sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE},
			   *bad = NULL;
	CHECK(ibv_post_send(p.a.qp, &wr, &bad) != 0);
	CHECK(bad == &wr);
	pair_down(&p);
}

/* All that the queue pair takes inline, which may be more than was asked for. */
static void inline_room(long asked)
{
	struct pair p;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	pair_up(&p, (struct wish){.inline_data = (uint32_t)asked});
	NEED(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init) == 0);
	uint32_t room = attr.cap.max_inline_data;
	CHECK((long)room >= asked);
	fill(p.a.buf, room, 6);
	NEED(post_recv(&p.b, 1, 0, room) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, room) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, room);
	CHECK(holds(p.b.buf, room, 6));
	pair_down(&p);
}

CASES
{
	ADD(inline_room, 16, "inline.as-much-as-there-is-room");
	ADD(inline_room, 0, "inline.as-much-as-there-is-room-without-being-asked");
}

CASE("inline.of-several-elements")
{
	struct pair p;

	pair_up(&p, (struct wish){.inline_data = 30, .sges = 3});
	fill(p.a.buf, 30, 6);
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	struct ibv_sge list[3] = {sge(&p.a, 0, 5), sge(&p.a, 5, 20), sge(&p.a, 25, 5)};
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = list, .num_sge = 3, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;
	NEED(ibv_post_send(p.a.qp, &wr, &bad) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, 30);
	CHECK(holds(p.b.buf, 30, 6));
	pair_down(&p);
}

CASE("inline.of-nothing")
{
	struct pair p;

	pair_up(&p, (struct wish){.inline_data = 16});
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 0) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, 0);
	pair_down(&p);
}

CASE("inline.of-a-read-is-refused")
{
	struct pair p;

	pair_up(&p, (struct wish){.inline_data = 16});
	CHECK(post(&p.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0, 8, &p.b, 0) != 0);
	pair_down(&p);
}
