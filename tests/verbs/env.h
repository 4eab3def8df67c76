/* The device under test, and two connected ends in one process. */
#ifndef WEFT_VERBS_ENV_H
#define WEFT_VERBS_ENV_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "../common/cases.h"

/* How queue pairs are brought up. */
enum bring_up { BY_CM, BY_GID };

/* What the command line asks for, and what the device says of itself; the same in every case. */
extern struct env {
	const char *device_name, *address, *address6;
	enum bring_up by;
	struct ibv_context *ctx;
	struct ibv_device_attr dev;
	struct ibv_device_attr_ex devx;
	struct ibv_port_attr port;
	int gid_index;
	union ibv_gid gid;
	bool iwarp;
	bool weft; /* Weft's device: where the man pages leave a choice, its answer is known */
} env;

/* Opens the device that the command line asks for, and asks it what it has: ahead of every case, in its process. */
void env_open(void);

/* Rights, for tables. */
enum { LW = IBV_ACCESS_LOCAL_WRITE, RW = IBV_ACCESS_REMOTE_WRITE, RR = IBV_ACCESS_REMOTE_READ };

enum {
	PORT = 1,
	BUF = 4 << 20,
	ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	/* Milliseconds in which nothing is expected to happen. */
	QUIET = 60,
};

static inline int at_most(int wanted, int limit)
{
	return wanted < limit ? wanted : limit;
}

/* --- capabilities: a case that needs one skips when the device reports it absent */

void need_srq(void);
void need_atomics(void);
void need_windows(int type); /* 1 or 2 */
void need_infiniband(void);  /* transport type, not link layer */
void need_iwarp(void);
void need_cm(void);
void need_immediate(void);
void need_v6(void);
/* For cases about what Weft answers where the man pages leave a choice. */
void need_weft(void);
/* A creation that failed: with an errno that says "not supported" the case skips, else it fails. */
_Noreturn void absent_or_wrong(const char *what);
bool says_unsupported(int error);

/* --- ends */

struct side {
	struct rdma_cm_id *id;
	struct ibv_context *ctx;
	struct ibv_comp_channel *channel;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *buf; /* BUF octets */
};

struct pair {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct side a, b; /* the active and the passive end */
};

/* What differs from the usual pair: zero is the default. */
struct wish {
	enum ibv_qp_type type; /* 0: RC */
	int depth, sges, inline_data, sig_all;
	int srq;	 /* b receives from a shared queue of this depth */
	int a_scqe;	 /* entries of a's send CQ */
	int b_rcqe;	 /* entries of b's receive CQ */
	int access;	 /* of b's region; 0: ALL_ACCESS */
	int a_access;	 /* of a's region */
	int max_reads;	 /* outstanding reads and atomics; 0: 16 or what the device has */
	uint64_t ops;	 /* ibv_create_qp_ex's send_ops_flags */
	uint64_t wc;	 /* ibv_create_cq_ex's wc_flags, for every CQ; with cq_ex */
	bool cq_ex;
	int family;	 /* 0: AF_INET */
};

void pair_up(struct pair *p, struct wish w);
/* Both ends with their queue pairs in RESET, to be brought up by hand. */
void pair_apart(struct pair *p, struct wish w);
void pair_down(struct pair *p);
/* The two queue pairs of a pair before their connection: by cm, a connected id's are made at connect. */
struct ibv_qp_init_attr init_of(struct side *s, const struct wish *w);
void side_objects(struct side *s, const struct wish *w, bool passive);
void side_down(struct side *s);

/* Objects that need no connection. */
struct ibv_pd *a_pd(void);
struct ibv_cq *a_cq(int cqe);
struct ibv_qp *a_qp(struct ibv_pd *pd, struct ibv_cq *cq);
void *some_memory(size_t length);
/* For what is unmapped again: nothing else comes to lie there. Once at a time in a process. */
void *memory_apart(size_t length);

/* --- posting and reaping */

struct ibv_sge sge(struct side *s, size_t at, uint32_t length);
int post_recv(struct side *s, uint64_t id, size_t at, uint32_t length);
int post(struct side *s, uint64_t id, enum ibv_wr_opcode op, int flags, size_t at, uint32_t length,
	 const struct side *peer, size_t peer_at);
int send_of(struct side *s, uint64_t id, int flags, size_t at, uint32_t length);
int post_atomic(struct side *s, uint64_t id, enum ibv_wr_opcode op, size_t at, const struct side *peer, size_t peer_at,
		uint64_t compare_add, uint64_t swap);

/* The next completion. */
bool reap(struct ibv_cq *cq, struct ibv_wc *wc);
bool quiet(struct ibv_cq *cq);

/* The next completion of a queue is this; `wc` of the caller, if any, gets it. */
#define COMPLETES(cq, id, st)                                                                                          \
	({                                                                                                             \
		struct ibv_wc wc_ = {};                                                                                \
		if (CHECKF(reap(cq, &wc_), "no completion on %s in time", #cq)) {                                   \
			CHECKF(wc_.wr_id == (uint64_t)(id), "the completion is of request %llu, not %llu",             \
			       (unsigned long long)wc_.wr_id, (unsigned long long)(id));                               \
			CHECKF(wc_.status == (st), "%s: status %s, not %s", #cq, ibv_wc_status_str(wc_.status),        \
			       ibv_wc_status_str(st));                                                                 \
		}                                                                                                      \
		wc_;                                                                                                   \
	})
#define WORKS(cq, id) COMPLETES(cq, id, IBV_WC_SUCCESS)

/* The side's channel tells of this queue; the event is taken and acknowledged. The first waits for it in the call. */
void take_event(struct side *s, struct ibv_cq *cq);
void one_event(struct side *s, struct ibv_cq *cq);

/* An acknowledgement that a thread gives after a while; and whether it was given before this is asked. */
struct later {
	void (*acknowledge)(void *of);
	void *of;
	bool given;
	pthread_t thread;
};
void acknowledge_later(struct later *later);
bool was_waited_for(struct later *later);

/* Octets that say where they belong. */
void fill(uint8_t *at, size_t length, unsigned seed);
bool holds(const uint8_t *at, size_t length, unsigned seed);
/* Octets of payload that no FPDU is too short for. A longer message may come in several, of which those before the one
   that is refused may have been placed (RFC 5041 section 5.3: a segment is placed without waiting for the message). */
#define ONE_SEGMENT 1024
/* Whether the side's buffer is all zeros, but for `but` octets from `from` on. */
bool untouched_but(const struct side *s, size_t length, size_t from, size_t but);

/* The queue pair's state as the device has it. */
enum ibv_qp_state state_of(struct ibv_qp *qp);
/* Waits until it is this one. */
bool becomes(struct ibv_qp *qp, enum ibv_qp_state state);
int to_state(struct ibv_qp *qp, enum ibv_qp_state state);

/* --- the connection manager */

struct sockaddr *address(int family, int port_in_order);
size_t address_length(const struct sockaddr *address);
bool readable(int fd, int ms);
/* It becomes so. */
bool comes(int fd);
/* The next event is this one; the caller acknowledges it. */
struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type);
/* The same, acknowledged; the id it is about. */
struct rdma_cm_id *expected(struct rdma_event_channel *channel, enum rdma_cm_event_type type);
/* The next event tells, in one of the ways there are, that no connection comes; its status. */
int refused_by(struct rdma_event_channel *channel);
struct rdma_cm_id *new_id(struct rdma_event_channel *channel);
struct rdma_cm_id *listen_on(struct rdma_event_channel *channel, int family, int backlog);
struct rdma_cm_id *towards(struct rdma_event_channel *channel, struct rdma_cm_id *listener);
/* Holds the port (in network order) of a listener that ended, so that no other process comes to listen there; -1 where
   one was quicker: then the case begins anew with another. */
int keep_port(int port_in_order);
/* An active id with its queue pair, and a listener, before the connection; the two ids' queue pairs alone. */
void half(struct pair *p);
void active_qp(struct pair *p);
void passive_qp(struct pair *p);

/* --- bring-up by GID and QPN */

struct end_point {
	union ibv_gid gid;
	uint32_t qpn, psn;
};
struct end_point end_of(struct ibv_qp *qp);
struct ibv_qp_attr attr_init(void);
struct ibv_qp_attr attr_rtr(const struct end_point *peer);
struct ibv_qp_attr attr_rts(const struct end_point *own);
int mask_init(enum ibv_qp_type type);
int mask_rtr(enum ibv_qp_type type);
int mask_rts(enum ibv_qp_type type);
void connect_by_gid(struct ibv_qp *a, struct ibv_qp *b, int access);
/* Brings a queue pair, connected to `peer`, into a state by the table's steps; and takes one step. */
void bring_to(struct ibv_qp *qp, struct ibv_qp *peer, enum ibv_qp_state state);
int step_to(struct ibv_qp *qp, struct ibv_qp *peer, enum ibv_qp_state state);

#endif
