/* What the life of a program does to datagrams that wait in user space: fork, exec, exit, duplicates, signals,
 * threads. The same has to hold without the hooks. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../../../tests/common/cases.h"

static int in, out;

/* Seconds that are waited for what has to come: a machine may stand still for some. */
enum { PATIENCE = 20 };

/* A receiving socket and one that is connected to it. */
static void open_pair(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    struct timeval wait = {PATIENCE, 0};
    in = socket(AF_INET, SOCK_DGRAM, 0);
    bind(in, (void *)&at, sizeof at);
    getsockname(in, (void *)&at, &len);
    setsockopt(in, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    out = socket(AF_INET, SOCK_DGRAM, 0);
    if (connect(out, (void *)&at, sizeof at)) perror("connect");
}

static void close_pair(void) {
    close(in);
    close(out);
}

static void burst(int fd, int count) {
    for (int i = 0; i < count; i++) {
        char datagram[100] = {(char)i};
        CHECK(send(fd, datagram, sizeof datagram, 0) == sizeof datagram);
    }
}

/* How many datagrams come, in order from `first`, before PATIENCE without one or `most`. */
static int take(int first, int most) {
    for (int i = 0; i < most; i++) {
        char datagram[200];
        if (recv(in, datagram, sizeof datagram, 0) != 100 || datagram[0] != (char)(first + i)) return i;
    }
    return most;
}

static void silent(int signal) { (void)signal; }

static void from_handler(int signal) {
    (void)signal;
    int before = errno;
    if (out >= 0) (void)!send(out, "from a handler", 14, MSG_DONTWAIT);
    errno = before;
}

/* Until there is none for as long as the socket's timeout. */
static void *receives_one(void *count) {
    char datagram[200];
    while (recv(in, datagram, sizeof datagram, 0) == 100) __atomic_fetch_add((int *)count, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* The same, until as many came as three threads send. */
static void *receives_all(void *count) {
    double end = now() + PATIENCE;
    while (__atomic_load_n((int *)count, __ATOMIC_SEQ_CST) < 150 && now() < end) receives_one(count);
    return NULL;
}

static void *blocks(void *unused) {
    char datagram[200];
    recv(in, datagram, sizeof datagram, 0);
    return unused;
}

static void *sends_many(void *unused) {
    burst(out, 50);
    return unused;
}

static int alive(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return status == 0;
}

CASE("life.what-gathers-arrives-though-the-program-never-calls-again") {
    open_pair();
    pid_t child = fork();
    if (child == 0) {
        burst(out, 20);
        for (;;) syscall(SYS_pause);
    }
    CHECK(take(0, 20) == 20);
    kill(child, SIGKILL);
    alive(child);
    close_pair();
}

CASE("life.what-gathered-leaves-before-fork-once") {
    open_pair();
    burst(out, 10);
    pid_t child = fork();
    if (child == 0) {
        burst(out, 10);
        exit(0);
    }
    CHECK(alive(child));
    CHECK(take(0, 10) == 10);
    CHECK(take(0, 10) == 10);
    CHECK(recv(in, &child, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    close_pair();
}

CASE("life.a-fork-that-is-a-bare-system-call-duplicates-nothing") {
    open_pair();
    burst(out, 10);
    pid_t child = (pid_t)syscall(SYS_fork);
    if (child == 0) {
        burst(out, 1);
        _exit(0);
    }
    CHECK(alive(child));
    int seen = 0;
    char datagram[70000];
    struct pollfd ready = {in, POLLIN, 0};
    while (poll(&ready, 1, seen < 11 ? PATIENCE * 1000 : 100) == 1 && recv(in, datagram, 200, 0) == 100) seen++;
    CHECK(seen == 11);
    close_pair();
}

CASE("life.exit-_exit-quick_exit-and-exec-flush") {
    for (int way = 0; way < 4; way++) {
        open_pair();
        pid_t child = fork();
        if (child == 0) {
            burst(out, 7);
            if (way == 0) exit(0);
            if (way == 1) _exit(0);
            if (way == 2) quick_exit(0);
            execl("/bin/true", "true", (char *)NULL);
        }
        CHECK(alive(child));
        CHECK(take(0, 7) == 7);
        close_pair();
    }
}

CASE("life.a-child-of-vfork-leaves-the-parents-datagrams-and-descriptors-alone") {
    open_pair();
    burst(out, 9);
    pid_t child = vfork();
    if (child == 0) {
        close(out);
        close(in);
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    CHECK(alive(child));
    burst(out, 3);
    CHECK(take(0, 9) == 9);
    CHECK(take(0, 3) == 3);
    close_pair();
}

CASE("life.close-dup2-over-it-and-shutdown-let-what-gathered-go-first") {
    for (int way = 0; way < 4; way++) {
        open_pair();
        burst(out, 6);
        if (way == 0) close(out);
        if (way == 1) dup2(in, out);
        if (way == 2) shutdown(out, SHUT_WR);
        if (way == 3) CHECK(close_range((unsigned)out, (unsigned)out, 0) == 0);
        CHECK(take(0, 6) == 6);
        close_pair();
    }
}

CASE("life.duplicates-are-one-socket") {
    char datagram[70000];
    struct pollfd ready = {in, POLLIN, 0};
    open_pair();
    int twin = dup(out), third = fcntl(out, F_DUPFD, 50);
    burst(out, 3);
    close(out);
    for (int i = 3; i < 6; i++) {
        char octets[100] = {(char)i};
        CHECK(write(i % 2 ? twin : third, octets, 100) == 100);
    }
    close(third);
    out = twin;
    CHECK(take(0, 6) == 6);
    int in_twin = dup(in);
    burst(out, 4);
    CHECK(recv(in_twin, datagram, sizeof datagram, 0) == 100 && datagram[0] == 0);
    CHECK(take(1, 1) == 1);
    /* Without waiting in the call; what the kernel has not brought yet is waited for before. */
    ready.fd = in_twin;
    CHECK(poll(&ready, 1, PATIENCE * 1000) == 1);
    CHECK(recv(in_twin, datagram, sizeof datagram, MSG_DONTWAIT) == 100 && datagram[0] == 2);
    close(in_twin);
    CHECK(take(3, 1) == 1);
    close_pair();
}

CASE("life.a-number-that-is-used-again-is-a-new-socket") {
    open_pair();
    burst(out, 2);
    int number = out;
    close(out);
    int other = open("/dev/null", O_WRONLY);
    CHECK(other == number && write(other, "x", 1) == 1);
    close(other);
    other = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(other == number && send(other, "x", 1, 0) == -1 && errno == EDESTADDRREQ);
    out = other;
    CHECK(take(0, 2) == 2);
    close_pair();
}

CASE("life.parent-and-child-read-one-socket-each-datagram-once") {
    char datagram[70000];
    open_pair();
    int counts = memfd_create("counts", 0);
    NEED(ftruncate(counts, 4096) == 0);
    int *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, counts, 0);
    CHECK(recv(in, datagram, 1, MSG_DONTWAIT) == -1);
    pid_t child = fork();
    struct timeval short_wait = {0, 300000};
    setsockopt(in, SOL_SOCKET, SO_RCVTIMEO, &short_wait, sizeof short_wait);
    if (child == 0) {
        receives_one(&count[0]);
        _exit(0);
    }
    burst(out, 120);
    receives_one(&count[1]);
    CHECK(alive(child));
    CHECK(count[0] + count[1] == 120);
    close_pair();
}

CASE("life.threads-share-a-receiving-and-a-sending-socket") {
    struct timeval short_wait = {0, 300000};
    pthread_t threads[6];
    int count = 0;
    open_pair();
    setsockopt(in, SOL_SOCKET, SO_RCVTIMEO, &short_wait, sizeof short_wait);
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, receives_all, &count);
    for (int i = 3; i < 6; i++) pthread_create(&threads[i], NULL, sends_many, NULL);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
    CHECK(count == 150);
    close_pair();
}

CASE("life.a-thread-that-waits-can-be-cancelled-and-the-socket-goes-on") {
    pthread_t threads[6];
    open_pair();
    pthread_create(&threads[0], NULL, blocks, NULL);
    usleep(20000);
    void *result;
    CHECK(pthread_cancel(threads[0]) == 0 && pthread_join(threads[0], &result) == 0 && result == PTHREAD_CANCELED);
    burst(out, 5);
    CHECK(take(0, 5) == 5);
    close_pair();
}

CASE("life.so_rcvtimeo-eintr-and-sa_restart-are-the-kernels") {
    char datagram[70000];
    open_pair();
    struct timeval tenth = {0, 100000};
    setsockopt(in, SOL_SOCKET, SO_RCVTIMEO, &tenth, sizeof tenth);
    double begin = now();
    CHECK(recv(in, datagram, 100, 0) == -1 && errno == EAGAIN && now() - begin > 0.09);
    struct timeval none = {0, 0};
    setsockopt(in, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    struct sigaction action = {.sa_handler = silent};
    sigaction(SIGALRM, &action, NULL);
    /* Again and again: the first may ring before the call. */
    ualarm(20000, 20000);
    CHECK(recv(in, datagram, 100, 0) == -1 && errno == EINTR);
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    pid_t child = fork();
    if (child == 0) {
        usleep(150000);
        burst(out, 1);
        exit(0);
    }
    CHECK(recv(in, datagram, 200, 0) == 100);
    ualarm(0, 0);
    CHECK(alive(child));
    close_pair();
}

CASE("life.a-handler-that-sends-comes-back-to-a-program-that-sends") {
    char datagram[70000];
    double begin;
    struct sigaction action = {};
    open_pair();
    int big = 4 << 20;
    setsockopt(in, SOL_SOCKET, SO_RCVBUF, &big, sizeof big);
    action.sa_handler = from_handler;
    sigaction(SIGALRM, &action, NULL);
    ualarm(500, 500);
    begin = now();
    int sent = 0, got = 0;
    while (now() - begin < 0.2) {
        burst(out, 10);
        sent += 10;
        while (recv(in, datagram, 200, MSG_DONTWAIT) == 100) got++;
    }
    ualarm(0, 0);
    CHECK(sent > 0);
    close_pair();
    signal(SIGALRM, SIG_IGN);
}

CASE("life.a-refused-destination-is-told-on-the-socket-that-asked") {
    double begin;
    open_pair();
    close(in);
    int refused = 0;
    for (begin = now(); !refused && now() - begin < PATIENCE;) {
        if (send(out, "x", 1, 0) == -1) refused = errno == ECONNREFUSED;
        usleep(1000);
    }
    CHECK(refused);
    while (send(out, "x", 1, 0) == -1) {}
    int error = 0;
    socklen_t len = sizeof error;
    for (begin = now(); !error && now() - begin < PATIENCE; usleep(1000))
        CHECK(getsockopt(out, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
    CHECK(error == ECONNREFUSED);
    close(out);
}

CASE("life.what-no-network-takes-is-emsgsize-and-the-rest-goes-on") {
    char datagram[70000];
    open_pair();
    burst(out, 8);
    static char huge[70000];
    CHECK(send(out, huge, sizeof huge, 0) == -1 && errno == EMSGSIZE);
    CHECK(take(0, 8) == 8);
    CHECK(send(out, huge, 65507, 0) == 65507);
    CHECK(recv(in, datagram, sizeof datagram, 0) == 65507);
    close_pair();
}

CASE("life.bad-addresses-are-efault") {
    open_pair();
    burst(out, 8);
    CHECK(send(out, (void *)16, 100, 0) == -1 && errno == EFAULT);
    CHECK(take(0, 8) == 8);
    burst(out, 3);
    CHECK(recv(in, (void *)16, 100, 0) == -1 && errno == EFAULT);
    CHECK(recvmsg(in, (void *)16, MSG_DONTWAIT) == -1);
    close_pair();
}

CASE("life.empty-datagrams-keep-their-place") {
    char datagram[70000];
    open_pair();
    burst(out, 2);
    CHECK(send(out, "", 0, 0) == 0);
    CHECK(send(out, "z", 1, 0) == 1);
    CHECK(take(0, 2) == 2);
    CHECK(recv(in, datagram, 10, 0) == 0);
    CHECK(recv(in, datagram, 10, 0) == 1);
    close_pair();
}

CASE("life.shutdown-of-the-reading-side-ends-a-wait") {
    pthread_t threads[6];
    double begin;
    open_pair();
    pthread_create(&threads[0], NULL, blocks, NULL);
    usleep(20000);
    shutdown(in, SHUT_RD);
    begin = now();
    pthread_join(threads[0], NULL);
    CHECK(now() - begin < PATIENCE / 2);
    close_pair();
}

CASE("life.no-descriptors-left-the-error-is-the-kernels-and-datagrams-go-on") {
    open_pair();
    struct rlimit limit, few;
    getrlimit(RLIMIT_NOFILE, &limit);
    few = limit;
    few.rlim_cur = (rlim_t)out + 1;
    setrlimit(RLIMIT_NOFILE, &few);
    int last;
    do last = dup(out);
    while (last >= 0);
    CHECK(errno == EMFILE && socket(AF_INET, SOCK_DGRAM, 0) == -1 && errno == EMFILE);
    burst(out, 5);
    CHECK(take(0, 5) == 5);
    setrlimit(RLIMIT_NOFILE, &limit);
    close_pair();
}

CASE("life.a-request-that-a-program-waits-for-the-answer-of-is-not-held") {
    char datagram[70000];
    socklen_t len;
    open_pair();
    struct sockaddr_in from;
    len = sizeof from;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 300; i++) {
            len = sizeof from;
            ssize_t octets = recvfrom(in, datagram, 200, 0, (void *)&from, &len);
            if (octets != 100 || sendto(in, datagram, 100, 0, (void *)&from, len) != 100) _exit(1);
        }
        _exit(0);
    }
    for (int i = 0; i < 300; i++) {
        burst(out, 1);
        CHECK(recv(out, datagram, 200, 0) == 100);
    }
    CHECK(alive(child));
    close_pair();
}

static void before(void) {
    signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv) {
    static const struct program program = {.name = "life", .before = before};

    return cases_main(argc, argv, &program);
}
