/* Sizes, for each operation. */
#include "env.h"

static const uint32_t sizes[] = {0,    1,    2,	   3,	 4,    7,     8,     63,    64,	    65,	     255,     256,
				 1023, 1024, 1025, 1447, 1448, 1449,  2047,  2048,  4095,    4096,    4097,    8192,
				 9000, 9001, 16384, 65535, 65536, 65537, 131072, 1 << 20, (1 << 20) + 1, 3 * (1 << 20) + 1};

static void send_size(long size)
{
	struct pair p;
	uint32_t length = (uint32_t)size;

	pair_up(&p, (struct wish){});
	fill(p.a.buf, length, 3);
	p.b.buf[length] = 0xee;
	NEED(post_recv(&p.b, 1, 0, length) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, length) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, length);
	WORKS(p.a.scq, 2);
	CHECK(holds(p.b.buf, length, 3));
	EQ(p.b.buf[length], 0xee);
	pair_down(&p);
}

static void write_size(long size)
{
	struct pair p;
	uint32_t length = (uint32_t)size;

	pair_up(&p, (struct wish){});
	fill(p.a.buf, length, 3);
	p.b.buf[99] = p.b.buf[100 + length] = 0xee;
	NEED(post_recv(&p.b, 1, BUF - 64, 64) == 0);
	NEED(post(&p.a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, length, &p.b, 100) == 0);
	NEED(send_of(&p.a, 3, IBV_SEND_SIGNALED, 0, 1) == 0);
	WORKS(p.a.scq, 2);
	WORKS(p.b.rcq, 1);
	CHECK(holds(p.b.buf + 100, length, 3));
	CHECK(p.b.buf[99] == 0xee && p.b.buf[100 + length] == 0xee);
	pair_down(&p);
}

static void read_size(long size)
{
	struct pair p;
	uint32_t length = (uint32_t)size;

	pair_up(&p, (struct wish){});
	fill(p.b.buf + 7, length, 3);
	p.a.buf[99] = p.a.buf[100 + length] = 0xee;
	NEED(post(&p.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 100, length, &p.b, 7) == 0);
	EQ(WORKS(p.a.scq, 2).byte_len, length);
	CHECK(holds(p.a.buf + 100, length, 3));
	CHECK(p.a.buf[99] == 0xee && p.a.buf[100 + length] == 0xee);
	pair_down(&p);
}

CASES
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		ADD(send_size, (long)sizes[i], "size.send-%u", sizes[i]);
		ADD(write_size, (long)sizes[i], "size.write-%u", sizes[i]);
		ADD(read_size, (long)sizes[i], "size.read-%u", sizes[i]);
	}
}

/* All sizes one after another on one connection: what one leaves behind is in the way of the next. */
CASE("size.all-on-one-connection")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		uint32_t length = sizes[i];
		fill(p.a.buf, length, i);
		NEED(post_recv(&p.b, 1, 0, length + 16) == 0);
		NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, length) == 0);
		WORKS(p.a.scq, 2);
		EQ(WORKS(p.b.rcq, 1).byte_len, length);
		NEED(holds(p.b.buf, length, i));
		fill(p.a.buf, length, i + 1);
		NEED(post(&p.a, 3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 0, length, &p.b, 1024) == 0);
		WORKS(p.a.scq, 3);
		memset(p.a.buf, 0, length);
		NEED(post(&p.a, 4, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, 512, length, &p.b, 1024) == 0);
		EQ(WORKS(p.a.scq, 4).byte_len, length);
		NEED(holds(p.b.buf + 1024, length, i + 1) && holds(p.a.buf + 512, length, i + 1));
	}
	pair_down(&p);
}

static void mtu_edges(long at)
{
	struct pair p;
	uint32_t mtu = 128u << env.port.active_mtu, length = mtu * (1 + (uint32_t)at / 3) + (uint32_t)(at % 3) - 1;

	pair_up(&p, (struct wish){});
	fill(p.a.buf, length, 3);
	NEED(post_recv(&p.b, 1, 0, length) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, length) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, length);
	CHECK(holds(p.b.buf, length, 3));
	pair_down(&p);
}

CASES
{
	for (long i = 0; i < 6; i++)
		ADD(mtu_edges, i, "size.send-of-%ld-mtu%s", 1 + i / 3, i % 3 == 0 ? "-less-1" : i % 3 == 2 ? "-and-1" : "");
}

CASE("size.longer-than-the-receive-is-a-local-length-error")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	p.b.buf[64] = 0xee;
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 65) == 0);
	COMPLETES(p.b.rcq, 1, IBV_WC_LOC_LEN_ERR);
	EQ(p.b.buf[64], 0xee);
	CHECK(becomes(p.b.qp, IBV_QPS_ERR));
}

CASE("size.longer-than-the-receive-is-an-error-at-the-sender")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 0, 64) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 65) == 0);
	COMPLETES(p.b.rcq, 1, IBV_WC_LOC_LEN_ERR);
	CHECK(becomes(p.a.qp, IBV_QPS_ERR));
	struct ibv_wc wc = {};
	/* On iWARP the send may have completed when its octets were handed over. */
	NEED(reap(p.a.scq, &wc));
	EQ(wc.wr_id, 2);
	CHECKF(env.iwarp ? wc.status != IBV_WC_RNR_RETRY_EXC_ERR : wc.status == IBV_WC_REM_INV_REQ_ERR, "status %s",
	       ibv_wc_status_str(wc.status));
}

CASE("size.shorter-than-the-receive-leaves-the-rest")
{
	struct pair p;

	pair_up(&p, (struct wish){});
	memset(p.b.buf, 0xee, 128);
	NEED(post_recv(&p.b, 1, 0, 128) == 0);
	NEED(send_of(&p.a, 2, IBV_SEND_SIGNALED, 0, 5) == 0);
	EQ(WORKS(p.b.rcq, 1).byte_len, 5);
	for (int i = 5; i < 128; i++)
		EQ(p.b.buf[i], 0xee);
	pair_down(&p);
}

CASE("size.above-the-limit-of-the-port-is-refused")
{
	struct pair p;

	if (env.port.max_msg_sz >= 1u << 31)
		SKIP("the port reports max_msg_sz %u", env.port.max_msg_sz);
	pair_up(&p, (struct wish){});
	NEED(post_recv(&p.b, 1, 0, BUF) == 0);
	struct ibv_sge list = sge(&p.a, 0, env.port.max_msg_sz + 1);
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &list, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	int error = ibv_post_send(p.a.qp, &wr, &bad);
	if (!error) {
		struct ibv_wc wc = {};
		NEED(reap(p.a.scq, &wc));
		CHECKF(wc.status == IBV_WC_LOC_LEN_ERR || wc.status == IBV_WC_LOC_PROT_ERR, "status %s",
		       ibv_wc_status_str(wc.status));
	} else {
		CHECK(bad == &wr);
	}
}
