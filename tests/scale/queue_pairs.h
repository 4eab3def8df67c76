/* What the two ways to bring up queue pairs share. */
#ifndef WEFT_SCALE_QUEUE_PAIRS_H
#define WEFT_SCALE_QUEUE_PAIRS_H

#include <rdma/rdma_cma.h>

#include "crowd.h"

/* Where a client may write at the server. */
struct target {
	uint64_t blocks;
	uint32_t rkey;
};

extern struct crowd {
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp **qps; /* of each connection */
	struct rdma_cm_id **ids;
	uint64_t looked_at; /* the receive whose message is being looked at, by its identifier and one */
	uint32_t *posted; /* work requests of each send queue */
	/* Of each connection `window` messages received, sent, and blocks written. */
	uint8_t *memory, *incoming, *outgoing, *blocks;
	struct target there;
} crowd;

void objects_make(struct ibv_context *context);
struct ibv_qp_init_attr qp_attributes(void);
/* The queue pair of a connection takes its first receives. */
void qp_ready(uint32_t connection, struct ibv_qp *qp);

void cm_listen(void);
void cm_accept(void);
void cm_prepare(void);
void cm_connect(uint64_t *each, uint64_t *all);

void gid_listen(void);
void gid_accept(void);
void gid_prepare(void);
void gid_connect(uint64_t *each, uint64_t *all);

#endif
