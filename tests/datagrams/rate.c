/* How fast datagrams go, and at what cost.
 *
 *   rate receive PORT SECONDS [gro]                  the last argument: the program coalesces by itself
 *   rate send ADDRESS PORT SIZE SECONDS [gso]        the last argument: the program segments by itself
 *   rate pace ADDRESS PORT SIZE RATE SECONDS         so many a second, each with the time it was sent at
 *   rate delay PORT SECONDS                          how long those took one way, and their jitter (RFC 3550)
 *   rate calls COUNT                                 nanoseconds of calls that the hooks pass through
 *   rate answer PORT | rate ask ADDRESS PORT COUNT   half round trips of 64 octets
 *
 * Prints one line of name=value. CPU is of the process itself (getrusage). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

static char data[1 << 17];

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void report(const char *what, uint64_t datagrams, uint64_t octets, double seconds) {
    double used = cpu();
    printf("%s datagrams=%lu octets=%lu seconds=%.3f gbit=%.3f cpu=%.3f ns_per_octet=%.4f\n", what, datagrams, octets,
           seconds, octets * 8 / seconds / 1e9, used, octets ? used * 1e9 / octets : 0);
}

static struct sockaddr_in address(const char *host, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, host, &to.sin_addr);
    return to;
}

static int bound(int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), big = 8 << 20;
    struct sockaddr_in at = address("0.0.0.0", port);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &big, sizeof big))
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &big, sizeof big);
    if (bind(fd, (void *)&at, sizeof at)) exit((perror("bind"), 2));
    return fd;
}

static int receive(int port, double seconds, int gro) {
    int fd = bound(port), one = 1;
    struct timeval wait = {0, 200000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    if (gro && setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof one)) exit((perror("UDP_GRO"), 2));
    uint64_t datagrams = 0, octets = 0;
    double begin = 0, last = 0, end = now() + seconds + 10;
    while (now() < end) {
        ssize_t got = recv(fd, data, sizeof data, 0);
        if (got < 0) {
            if (begin) break;
            continue;
        }
        last = now();
        if (!begin) begin = last;
        datagrams++;
        octets += (uint64_t)got;
    }
    report("receive", datagrams, octets, last - begin > 0 ? last - begin : 1);
    return 0;
}

static int transmit(const char *host, int port, int size, double seconds, int gso) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = address(host, port);
    if (connect(fd, (void *)&to, sizeof to)) exit((perror("connect"), 2));
    int batch = gso ? 65507 / size > 64 ? 64 : 65507 / size : 1;
    if (gso && setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size)) exit((perror("UDP_SEGMENT"), 2));
    uint64_t calls = 0, refused = 0;
    double begin = now(), end = begin + seconds;
    while (calls % 64 || now() < end) {
        if (send(fd, data, (size_t)(size * batch), 0) < 0) refused++;
        calls++;
    }
    double took = now() - begin;
    if (refused) fprintf(stderr, "%lu of %lu sends failed: %s\n", refused, calls, strerror(errno));
    report("send", calls * (uint64_t)batch, calls * (uint64_t)(batch * size), took);
    return refused != 0;
}

static int answer(int port) {
    int fd = bound(port);
    struct sockaddr_in from;
    for (;;) {
        socklen_t len = sizeof from;
        ssize_t got = recvfrom(fd, data, sizeof data, 0, (void *)&from, &len);
        if (got == 1) return 0;
        if (got > 0) sendto(fd, data, (size_t)got, 0, (void *)&from, len);
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int ask(const char *host, int port, int count) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = address(host, port);
    struct timeval wait = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    double *took = calloc((size_t)count, sizeof *took);
    if (!took || connect(fd, (void *)&to, sizeof to)) exit((perror("connect"), 2));
    for (int i = 0; i < count; i++) {
        double begin = now();
        send(fd, data, 64, 0);
        if (recv(fd, data, sizeof data, 0) != 64) exit((perror("no answer"), 1));
        took[i] = (now() - begin) / 2 * 1e6;
    }
    send(fd, data, 1, 0);
    qsort(took, (size_t)count, sizeof *took, by_value);
    printf("half p50=%.2f p99=%.2f p99.9=%.2f us\n", took[count / 2], took[count * 99L / 100], took[count * 999L / 1000]);
    free(took);
    return 0;
}

static int pace(const char *host, int port, int size, double rate, double seconds) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = address(host, port);
    if (connect(fd, (void *)&to, sizeof to)) exit((perror("connect"), 2));
    uint64_t sent = 0;
    double begin = now(), end = begin + seconds;
    for (double due = begin; due < end; due = begin + (double)++sent / rate) {
        double time;
        while ((time = now()) < due) {}
        memcpy(data, &time, sizeof time);
        send(fd, data, (size_t)size, 0);
    }
    report("pace", sent, sent * (uint64_t)size, now() - begin);
    return 0;
}

static int delay(int port, double seconds) {
    enum { MOST = 4000000 };
    int fd = bound(port);
    struct timeval wait = {0, 300000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    double *took = malloc(MOST * sizeof *took), sent, jitter = 0, sum = 0, end = now() + seconds + 10;
    int count = 0;
    if (!took) exit((perror("malloc"), 2));
    while (now() < end && count < MOST) {
        ssize_t got = recv(fd, data, sizeof data, 0);
        if (got < (ssize_t)sizeof sent) {
            if (count) break;
            continue;
        }
        memcpy(&sent, data, sizeof sent);
        took[count] = (now() - sent) * 1e6;
        if (count > 0) {
            double difference = took[count] - took[count - 1];
            jitter += ((difference < 0 ? -difference : difference) - jitter) / 16;
            sum += jitter;
        }
        count++;
    }
    if (count < 2) exit((fprintf(stderr, "nothing came\n"), 1));
    qsort(took, (size_t)count, sizeof *took, by_value);
    printf("delay datagrams=%d p50=%.2f p99=%.2f p99.9=%.2f jitter=%.2f us cpu=%.3f\n", count, took[count / 2],
           took[count * 99L / 100], took[count * 999L / 1000], sum / (count - 1), cpu());
    free(took);
    return 0;
}

/* The same cheap calls over and over: what a hook adds to each shows in the difference. */
static int calls(int count) {
    int pair[2], epoll = epoll_create1(0);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) exit((perror("socketpair"), 2));
    epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &(struct epoll_event){.events = EPOLLIN});
    struct pollfd ready = {pair[0], POLLIN, 0};
    struct epoll_event event;
    double cost[4] = {1e9, 1e9, 1e9, 1e9};
    for (int round = 0; round < 20; round++)
        for (int which = 0; which < 4; which++) {
            double begin = now();
            for (int i = 0; i < count / 20; i++) {
                if (which == 0) (void)!send(pair[0], data, 0, MSG_NOSIGNAL);
                if (which == 1) recv(pair[0], data, 1, MSG_DONTWAIT);
                if (which == 2) poll(&ready, 1, 0);
                if (which == 3) epoll_wait(epoll, &event, 1, 0);
            }
            double each = (now() - begin) / (count / 20) * 1e9;
            if (each < cost[which]) cost[which] = each;
        }
    printf("calls send=%.1f recv=%.1f poll=%.1f epoll_wait=%.1f ns\n", cost[0], cost[1], cost[2], cost[3]);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "receive") && argc >= 4) return receive(atoi(argv[2]), atof(argv[3]), argc > 4);
    if (!strcmp(what, "send") && argc >= 6)
        return transmit(argv[2], atoi(argv[3]), atoi(argv[4]), atof(argv[5]), argc > 6);
    if (!strcmp(what, "pace") && argc == 7)
        return pace(argv[2], atoi(argv[3]), atoi(argv[4]), atof(argv[5]), atof(argv[6]));
    if (!strcmp(what, "delay") && argc == 4) return delay(atoi(argv[2]), atof(argv[3]));
    if (!strcmp(what, "calls") && argc == 3) return calls(atoi(argv[2]));
    if (!strcmp(what, "answer") && argc == 3) return answer(atoi(argv[2]));
    if (!strcmp(what, "ask") && argc == 5) return ask(argv[2], atoi(argv[3]), atoi(argv[4]));
    fprintf(stderr, "usage: see the head of rate.c\n");
    return 2;
}
