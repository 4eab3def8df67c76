/* The port: attributes, GID and P_Key tables. */
#include "env.h"

CASE("port.is-active")
{
	EQ(env.port.state, IBV_PORT_ACTIVE);
	EQ(env.port.phys_state, 5);
}

CASE("port.mtus")
{
	CHECK(env.port.active_mtu >= IBV_MTU_256 && env.port.active_mtu <= env.port.max_mtu);
	CHECK(env.port.max_mtu <= IBV_MTU_4096);
}

CASE("port.message-size")
{
	CHECK(env.port.max_msg_sz >= 1 << 23);
}

CASE("port.tables-have-entries")
{
	CHECK(env.port.gid_tbl_len >= 1);
	CHECK(env.port.pkey_tbl_len >= 1 || env.iwarp);
}

CASE("port.link-layer-is-told")
{
	CHECK(env.port.link_layer == IBV_LINK_LAYER_ETHERNET || env.port.link_layer == IBV_LINK_LAYER_INFINIBAND);
}

CASE("port.width-and-speed-are-codes")
{
	CHECK(env.port.active_width && (env.port.active_width & (env.port.active_width - 1)) == 0);
	CHECK(env.port.active_speed && (env.port.active_speed & (env.port.active_speed - 1)) == 0);
}

CASE("port.0-is-none")
{
	struct ibv_port_attr attr;

	CHECK(ibv_query_port(env.ctx, 0, &attr) != 0);
}

CASE("port.past-the-last-is-none")
{
	struct ibv_port_attr attr;

	CHECK(ibv_query_port(env.ctx, env.dev.phys_port_cnt + 1, &attr) != 0);
}

CASE("port.gid")
{
	union ibv_gid gid;

	memset(&gid, 0, sizeof(gid));
	EQ(ibv_query_gid(env.ctx, PORT, 0, &gid), 0);
	CHECK(gid.global.subnet_prefix || gid.global.interface_id);
}

CASE("port.gid-past-the-table")
{
	union ibv_gid gid;

	EQ(ibv_query_gid(env.ctx, PORT, env.port.gid_tbl_len, &gid), -1);
}

CASE("port.gid-of-index-minus-one")
{
	union ibv_gid gid;

	EQ(ibv_query_gid(env.ctx, PORT, -1, &gid), -1);
}

CASE("port.gid-of-no-port")
{
	union ibv_gid gid;

	EQ(ibv_query_gid(env.ctx, 99, 0, &gid), -1);
}

CASE("port.gid-ex-is-the-same-gid")
{
	struct ibv_gid_entry entry = {};
	union ibv_gid gid;

	NEED(ibv_query_gid(env.ctx, PORT, 0, &gid) == 0);
	EQ(ibv_query_gid_ex(env.ctx, PORT, 0, &entry, 0), 0);
	SAME(&entry.gid, &gid, sizeof(gid));
	EQ(entry.gid_index, 0);
	EQ(entry.port_num, PORT);
	CHECK(entry.gid_type <= IBV_GID_TYPE_ROCE_V2);
}

CASE("port.gid-ex-flags-are-none")
{
	struct ibv_gid_entry entry;

	CHECK(ibv_query_gid_ex(env.ctx, PORT, 0, &entry, 1) != 0);
}

CASE("port.gid-ex-past-the-table")
{
	struct ibv_gid_entry entry;

	CHECK(ibv_query_gid_ex(env.ctx, PORT, (uint32_t)env.port.gid_tbl_len, &entry, 0) != 0);
}

CASE("port.gid-ex-of-no-port")
{
	struct ibv_gid_entry entry;

	CHECK(ibv_query_gid_ex(env.ctx, 99, 0, &entry, 0) != 0);
}

CASE("port.gid-table-agrees-with-single-queries")
{
	struct ibv_gid_entry entries[1024], one;
	ssize_t count = ibv_query_gid_table(env.ctx, entries, 1024, 0);

	CHECK(count >= 1 && count <= env.port.gid_tbl_len * env.dev.phys_port_cnt);
	for (ssize_t i = 0; i < count; i++) {
		EQ(ibv_query_gid_ex(env.ctx, entries[i].port_num, entries[i].gid_index, &one, 0), 0);
		SAME(&one.gid, &entries[i].gid, sizeof(one.gid));
		EQ(one.gid_type, entries[i].gid_type);
	}
}

CASE("port.gid-table-too-small-fails")
{
	struct ibv_gid_entry entry;

	CHECK(ibv_query_gid_table(env.ctx, &entry, 0, 0) < 0);
}

CASE("port.gid-table-flags-are-none")
{
	struct ibv_gid_entry entries[1024];

	CHECK(ibv_query_gid_table(env.ctx, entries, 1024, 1) < 0);
}

CASE("port.roce-gids-are-of-addresses")
{
	need_infiniband();
	if (env.port.link_layer != IBV_LINK_LAYER_ETHERNET)
		SKIP("the link layer is InfiniBand");
	struct ibv_gid_entry entries[1024];
	ssize_t count = ibv_query_gid_table(env.ctx, entries, 1024, 0);
	NEED(count >= 1);
	for (ssize_t i = 0; i < count; i++) {
		CHECK(entries[i].gid_type == IBV_GID_TYPE_ROCE_V1 || entries[i].gid_type == IBV_GID_TYPE_ROCE_V2);
		CHECK(entries[i].ndev_ifindex > 0);
	}
}

CASE("port.pkey-is-a-full-member")
{
	__be16 pkey = 0;

	if (env.port.pkey_tbl_len == 0)
		SKIP("the device reports no partition keys");
	EQ(ibv_query_pkey(env.ctx, PORT, 0, &pkey), 0);
	CHECK(ntohs(pkey) & 0x8000);
}

CASE("port.pkey-past-the-table")
{
	__be16 pkey;

	EQ(ibv_query_pkey(env.ctx, PORT, env.port.pkey_tbl_len, &pkey), -1);
}

CASE("port.pkey-index-finds-the-pkey")
{
	__be16 pkey = 0;

	if (env.port.pkey_tbl_len == 0)
		SKIP("the device reports no partition keys");
	NEED(ibv_query_pkey(env.ctx, PORT, 0, &pkey) == 0);
	EQ(ibv_get_pkey_index(env.ctx, PORT, pkey), 0);
	EQ(ibv_get_pkey_index(env.ctx, PORT, htons(0x1234)), -1);
}
