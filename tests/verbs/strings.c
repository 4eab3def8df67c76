/* Strings and numbers, which need no device. */
#include "env.h"

static void status_string(long status)
{
	const char *text = ibv_wc_status_str((enum ibv_wc_status)status);

	CHECK(text && *text);
	CHECK(strcmp(text, "unknown") != 0);
}

static void event_string(long event)
{
	const char *text = ibv_event_type_str((enum ibv_event_type)event);

	CHECK(text && *text);
	CHECK(strcmp(text, "unknown") != 0);
}

static void cm_string(long event)
{
	const char *text = rdma_event_str((enum rdma_cm_event_type)event);

	CHECK(text && strncmp(text, "RDMA_CM_EVENT_", 14) == 0);
}

static void rate(long at)
{
	enum ibv_rate code = (enum ibv_rate)at;
	int mult = ibv_rate_to_mult(code), mbps = ibv_rate_to_mbps(code);

	CHECK(mbps > 0);
	EQ(mbps_to_ibv_rate(mbps), code);
	/* Multiples of 2.5 Gbit/s are exact, others have none. */
	if (mult > 0)
		EQ(mult_to_ibv_rate(mult), code);
}

CASES
{
	for (long i = IBV_WC_SUCCESS; i <= IBV_WC_TM_RNDV_INCOMPLETE; i++)
		ADD(status_string, i, "strings.completion-status-%ld", i);
	for (long i = IBV_EVENT_CQ_ERR; i <= IBV_EVENT_WQ_FATAL; i++)
		ADD(event_string, i, "strings.asynchronous-event-%ld", i);
	for (long i = RDMA_CM_EVENT_ADDR_RESOLVED; i <= RDMA_CM_EVENT_TIMEWAIT_EXIT; i++)
		ADD(cm_string, i, "strings.cm-event-%ld", i);
	static const enum ibv_rate rates[] = {IBV_RATE_2_5_GBPS, IBV_RATE_5_GBPS,   IBV_RATE_10_GBPS,
					      IBV_RATE_20_GBPS,	 IBV_RATE_30_GBPS,  IBV_RATE_40_GBPS,
					      IBV_RATE_60_GBPS,	 IBV_RATE_80_GBPS,  IBV_RATE_120_GBPS,
					      IBV_RATE_14_GBPS,	 IBV_RATE_56_GBPS,  IBV_RATE_112_GBPS,
					      IBV_RATE_168_GBPS, IBV_RATE_25_GBPS,  IBV_RATE_100_GBPS,
					      IBV_RATE_200_GBPS, IBV_RATE_300_GBPS, IBV_RATE_28_GBPS,
					      IBV_RATE_50_GBPS,	 IBV_RATE_400_GBPS, IBV_RATE_600_GBPS};
	for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++)
		ADD(rate, rates[i], "strings.rate-%d", (int)rates[i]);
}

CASE("strings.unknown-status")
{
	CHECK(ibv_wc_status_str((enum ibv_wc_status)999));
	CHECK(strstr(ibv_wc_status_str((enum ibv_wc_status)999), "unknown"));
}

CASE("strings.unknown-event")
{
	CHECK(strstr(ibv_event_type_str((enum ibv_event_type)999), "unknown"));
}

CASE("strings.unknown-cm-event")
{
	CHECK(strcasestr(rdma_event_str((enum rdma_cm_event_type)999), "unknown"));
}

CASE("strings.node-types")
{
	for (int i = IBV_NODE_CA; i <= IBV_NODE_UNSPECIFIED; i++)
		CHECK(*ibv_node_type_str((enum ibv_node_type)i));
	CHECK(strstr(ibv_node_type_str((enum ibv_node_type)99), "unknown"));
	CHECK(strcasestr(ibv_node_type_str(IBV_NODE_RNIC), "iWARP"));
}

CASE("strings.port-states")
{
	for (int i = IBV_PORT_NOP; i <= IBV_PORT_ACTIVE_DEFER; i++)
		CHECK(*ibv_port_state_str((enum ibv_port_state)i));
	CHECK(strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active") == 0);
	CHECK(strcmp(ibv_port_state_str((enum ibv_port_state)99), "unknown") == 0);
}

CASE("strings.a-rate-of-none")
{
	EQ(ibv_rate_to_mult((enum ibv_rate)9999), -1);
	EQ(ibv_rate_to_mbps((enum ibv_rate)9999), -1);
	EQ(mult_to_ibv_rate(9999), IBV_RATE_MAX);
	EQ(mbps_to_ibv_rate(1), IBV_RATE_MAX);
}

CASE("strings.rkey-increments-its-low-octet")
{
	EQ(ibv_inc_rkey(0x12345600), 0x12345601);
	EQ(ibv_inc_rkey(0x123456fe), 0x123456ff);
	EQ(ibv_inc_rkey(0x123456ff), 0x12345600);
}
