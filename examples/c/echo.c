/*
 * A message to a server and back, by Sends over a connection of librdmacm: the smallest program that needs an RDMA
 * device. Both ends are in this file, in two processes.
 *
 *     echo [ADDRESS [PORT]]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

enum { MESSAGE_SIZE = 64 };

static void die(const char *what)
{
    fprintf(stderr, "echo: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

/* An endpoint for that address: a listener with RAI_PASSIVE, else one that can connect. */
static struct rdma_cm_id *endpoint(const char *address, const char *port, int flags)
{
    struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
    struct ibv_qp_init_attr queues = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}, .sq_sig_all = 1};
    struct rdma_cm_id *id;

    if (rdma_getaddrinfo(address, port, &hints, &found))
        die(address);
    if (rdma_create_ep(&id, found, NULL, &queues))
        die("rdma_create_ep");
    rdma_freeaddrinfo(found);
    return id;
}

/* Registers the buffer and posts it for the next message. */
static struct ibv_mr *post_receive(struct rdma_cm_id *id, char *buffer)
{
    struct ibv_mr *mr = rdma_reg_msgs(id, buffer, MESSAGE_SIZE);

    if (!mr || rdma_post_recv(id, NULL, buffer, MESSAGE_SIZE, mr))
        die("receive");
    return mr;
}

static void await_message(struct rdma_cm_id *id)
{
    struct ibv_wc done;

    if (rdma_get_recv_comp(id, &done) <= 0)
        die("rdma_get_recv_comp");
    if (done.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "echo: receive: %s\n", ibv_wc_status_str(done.status));
        exit(EXIT_FAILURE);
    }
}

static void send_message(struct rdma_cm_id *id, struct ibv_mr *mr)
{
    struct ibv_wc done;

    if (rdma_post_send(id, NULL, mr->addr, MESSAGE_SIZE, mr, 0) || rdma_get_send_comp(id, &done) <= 0)
        die("send");
}

static void serve(struct rdma_cm_id *listener)
{
    static char message[MESSAGE_SIZE];
    struct rdma_cm_id *id;
    struct ibv_mr *mr;

    if (rdma_get_request(listener, &id))
        die("rdma_get_request");
    mr = post_receive(id, message);
    if (rdma_accept(id, NULL))
        die("rdma_accept");
    await_message(id);
    send_message(id, mr);
    rdma_disconnect(id);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(id);
}

static void ask(struct rdma_cm_id *id)
{
    static char question[MESSAGE_SIZE] = "is there an echo?", answer[MESSAGE_SIZE];
    struct ibv_mr *mr = rdma_reg_msgs(id, question, MESSAGE_SIZE), *answer_mr = post_receive(id, answer);

    if (!mr)
        die("rdma_reg_msgs");
    if (rdma_connect(id, NULL))
        die("rdma_connect");
    send_message(id, mr);
    await_message(id);
    if (strcmp(answer, question)) {
        fprintf(stderr, "echo: another answer came: %.*s\n", MESSAGE_SIZE, answer);
        exit(EXIT_FAILURE);
    }
    printf("%s: %s\n", ibv_get_device_name(id->verbs->device), answer);
    rdma_disconnect(id);
    rdma_dereg_mr(mr);
    rdma_dereg_mr(answer_mr);
    rdma_destroy_ep(id);
}

int main(int argc, char **argv)
{
    const char *address = argc > 1 ? argv[1] : "127.0.0.1", *port = argc > 2 ? argv[2] : "7471";
    int listening[2], status;
    char byte = 0;
    pid_t client;

    if (pipe(listening) || (client = fork()) < 0)
        die("fork");
    if (client == 0) {
        close(listening[1]);
        if (read(listening[0], &byte, 1) != 1)
            return EXIT_FAILURE; /* the server has said why */
        ask(endpoint(address, port, 0));
        return EXIT_SUCCESS;
    }
    struct rdma_cm_id *listener = endpoint(address, port, RAI_PASSIVE);
    if (rdma_listen(listener, 1))
        die("rdma_listen");
    if (write(listening[1], &byte, 1) != 1)
        die("pipe");
    serve(listener);
    rdma_destroy_ep(listener);
    if (waitpid(client, &status, 0) != client || status != 0)
        return EXIT_FAILURE;
    return EXIT_SUCCESS;
}
