/* Bad luck: what a program does that leaves Weft less than it is used to. Run with and without the hooks; the program
 * gets what it would have had without. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "../../../tests/common/cases.h"

enum { COUNT = 200, SIZE = 100 };

static int in, out;

static void need(int good, const char *what) {
    if (!CHECKF(good, "%s: %s", what, strerror(errno))) case_end();
}

static void open_pair(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    struct timeval wait = {20, 0};
    int room = 4 << 20;
    in = socket(AF_INET, SOCK_DGRAM, 0);
    out = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(in, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    setsockopt(in, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    need(!bind(in, (void *)&at, sizeof at) && !getsockname(in, (void *)&at, &len), "bind");
    need(!connect(out, (void *)&at, sizeof at), "connect");
}

static void put(int fd, int number) {
    char datagram[SIZE];
    memset(datagram, number, SIZE);
    need(send(fd, datagram, SIZE, 0) == SIZE, "send");
}

static void take(int fd, int number) {
    char datagram[2 * SIZE], wanted[SIZE];
    memset(wanted, number, SIZE);
    need(recv(fd, datagram, sizeof datagram, 0) == SIZE, "recv");
    errno = EBADMSG;
    need(!memcmp(datagram, wanted, SIZE), "what arrived");
}

/* Busy, so that something has gathered and receives are coalesced when the sandbox comes down. */
static void busy(int fd) {
    for (int i = 0; i < COUNT; i++) put(fd, i);
    for (int i = 0; i < COUNT / 2; i++) take(in, i);
}

/* A filter that allows these calls, and kills for the rest; how long it is. */
static unsigned short filter_of(struct sock_filter *filter, const int *allowed, size_t count) {
    unsigned short length = 0;
    filter[length++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    return length;
}

/* A sandbox that allows send, recv and little else. */
static void sandbox(long by_number) {
    /* What the rest of the program does itself; a call that it does not is its end. */
    static const int allowed[] = {SYS_sendto,     SYS_recvfrom, SYS_recvmsg,      SYS_write,  SYS_exit_group,
                                  SYS_rt_sigreturn, SYS_exit,     SYS_restart_syscall, SYS_dup3};
    struct sock_filter filter[2 * sizeof allowed / sizeof *allowed + 2];
    unsigned short length = filter_of(filter, allowed, sizeof allowed / sizeof *allowed);
    struct sock_fprog program = {length, filter};

    open_pair();
    busy(out);
    if (by_number) {
        /* A privileged program needs no prctl before. */
        need(geteuid() == 0 || !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
        need(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), "seccomp");
    } else {
        need(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
        need(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), "prctl");
    }
    for (int i = COUNT / 2; i < COUNT; i++) take(in, i);
    for (int i = 0; i < COUNT; i++) {
        put(out, i);
        take(in, i);
    }
    need(dup3(out, 0, 0) == 0, "dup3");
    _exit(0);
}

/* The smallest ring there is, without a library. */
static struct {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *done;
} ring;

static void open_ring(void) {
    struct io_uring_params p = {0};
    ring.fd = (int)syscall(SYS_io_uring_setup, 8, &p);
    if (ring.fd < 0 && (errno == ENOSYS || errno == EPERM)) SKIP("the kernel refuses io_uring");
    need(ring.fd >= 0, "io_uring_setup");
    char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
                    IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof *ring.done, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
                    IORING_OFF_CQ_RING);
    ring.entries = mmap(NULL, p.sq_entries * sizeof *ring.entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
                        IORING_OFF_SQES);
    need(sq != MAP_FAILED && cq != MAP_FAILED && ring.entries != MAP_FAILED, "mmap");
    ring.sq_tail = (void *)(sq + p.sq_off.tail);
    ring.sq_mask = (void *)(sq + p.sq_off.ring_mask);
    ring.sq_array = (void *)(sq + p.sq_off.array);
    ring.cq_head = (void *)(cq + p.cq_off.head);
    ring.cq_tail = (void *)(cq + p.cq_off.tail);
    ring.cq_mask = (void *)(cq + p.cq_off.ring_mask);
    ring.done = (void *)(cq + p.cq_off.cqes);
}

static int by_ring(int operation, int fd, void *octets, unsigned length) {
    unsigned at = *ring.sq_tail & *ring.sq_mask;
    ring.entries[at] = (struct io_uring_sqe){
        .opcode = (unsigned char)operation, .fd = fd, .addr = (unsigned long)octets, .len = length};
    ring.sq_array[at] = at;
    __atomic_store_n(ring.sq_tail, *ring.sq_tail + 1, __ATOMIC_RELEASE);
    need(syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1, "io_uring_enter");
    int result = ring.done[*ring.cq_head & *ring.cq_mask].res;
    __atomic_store_n(ring.cq_head, *ring.cq_head + 1, __ATOMIC_RELEASE);
    return result;
}

/* Datagrams through io_uring, beside the C library on another socket. */
CASE("luck.io_uring-beside-the-c-library") {
    char datagram[2 * SIZE], wanted[SIZE];
    open_pair();
    open_ring();
    int ring_in = in, ring_out = out;
    open_pair();
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < COUNT; i++) put(out, i);
        for (int i = 0; i < COUNT; i++) {
            memset(wanted, i, SIZE);
            need(by_ring(IORING_OP_SEND, ring_out, wanted, SIZE) == SIZE, "a send by the ring");
        }
        for (int i = 0; i < COUNT; i++) {
            memset(wanted, i, SIZE);
            need(by_ring(IORING_OP_RECV, ring_in, datagram, sizeof datagram) == SIZE, "a receive by the ring");
            need(!memcmp(datagram, wanted, SIZE), "what the ring brought");
            take(in, i);
        }
    }
}

/* Sends, closes and copies by way of syscall(2). */
CASE("luck.calls-by-their-number") {
    char datagram[SIZE];
    open_pair();
    for (int round = 0; round < 20; round++) {
        /* By name, by number, by name: in this order. */
        for (int i = 0; i < 20; i++) put(out, i);
        memset(datagram, 20, SIZE);
        need(syscall(SYS_sendto, out, datagram, SIZE, 0, NULL, 0) == SIZE, "sendto by number");
        for (int i = 21; i < 40; i++) put(out, i);
        memset(datagram, 40, SIZE);
        need(syscall(SYS_write, out, datagram, SIZE) == SIZE, "write by number");
        for (int i = 0; i <= 40; i++) take(in, i);
        /* Closed and copied by number. */
        for (int i = 0; i < 20; i++) put(out, i);
        int copy = (int)syscall(SYS_dup, out);
        need(!syscall(SYS_close, out), "close by number");
        out = copy;
        for (int i = 20; i < 40; i++) put(out, i);
        /* What stood at this number was sent. */
        int other = open("/dev/null", O_RDWR);
        need(syscall(SYS_dup2, other, copy) == copy, "dup2 by number");
        for (int i = 0; i < 40; i++) take(in, i);
        need(write(copy, datagram, SIZE) == SIZE, "a write to nothing");
        close(other);
        close(out);
        close(in);
        open_pair();
        for (int i = 0; i < 20; i++) put(out, i);
        pid_t child = (pid_t)syscall(SYS_fork);
        if (child == 0) syscall(SYS_exit_group, 0);
        for (int i = 0; i < 20; i++) take(in, i);
    }
}

/* What gathered leaves before further calls by number that send, wait or make a process. */
CASE("luck.sends-waits-and-forks-by-their-number") {
    char datagram[SIZE], got[2 * SIZE];
    struct iovec part = {datagram, SIZE};
    struct clone_args like_fork = {.exit_signal = SIGCHLD};
    int file = memfd_create("luck", 0), ends[2];
    open_pair();
    need(file >= 0 && !pipe(ends), "a file and a pipe");
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 20; i++) put(out, i);
        memset(datagram, 20, SIZE);
        need(pwrite(file, datagram, SIZE, 0) == SIZE && !lseek(file, 0, SEEK_SET), "a file's octets");
        need(syscall(SYS_sendfile, out, file, NULL, SIZE) == SIZE, "sendfile by number");
        for (int i = 21; i < 40; i++) put(out, i);
        memset(datagram, 40, SIZE);
        need(syscall(SYS_pwritev2, out, &part, 1, -1L, -1L, 0) == SIZE, "pwritev2 by number");
        for (int i = 41; i < 60; i++) put(out, i);
        memset(datagram, 60, SIZE);
        need(write(ends[1], datagram, SIZE) == SIZE, "a pipe's octets");
        need(syscall(SYS_splice, ends[0], NULL, out, NULL, SIZE, 0) == SIZE, "splice by number");
        for (int i = 0; i <= 60; i++) take(in, i);
        /* A child that clone3 makes has none of what gathered. */
        for (int i = 0; i < 20; i++) put(out, i);
        pid_t child = (pid_t)syscall(SYS_clone3, &like_fork, sizeof like_fork);
        if (child == 0) exit(0);
        need(child > 0 && waitpid(child, NULL, 0) == child, "clone3 by number");
        for (int i = 0; i < 20; i++) take(in, i);
        need(recv(in, got, sizeof got, MSG_DONTWAIT) == -1 && errno == EAGAIN, "a datagram of the child's");
    }
    close(file);
    close(ends[0]);
    close(ends[1]);
}

/* As sshd's child does before anybody has shown who they are: it has a connection that its parent has accepted,
 * confines itself, reads and writes, and ends with what a program does at its end. */
CASE("luck.a-child-in-a-sandbox-that-ends-in-order") {
    static const int allowed[] = {SYS_read,   SYS_write,      SYS_close,       SYS_futex,
                                  SYS_getpid, SYS_exit_group, SYS_rt_sigreturn};
    struct sock_filter filter[2 * sizeof allowed / sizeof *allowed + 2];
    struct sock_fprog program = {filter_of(filter, allowed, sizeof allowed / sizeof *allowed), filter};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), status;
    char word[5];
    need(!bind(listener, (void *)&at, sizeof at) && !listen(listener, 1), "listen");
    /* No hook sees it: the client is a plain one, whatever the mode. */
    need(!getsockname(listener, (void *)&at, &len) && !syscall(SYS_connect, client, &at, sizeof at), "connect");
    int server = accept(listener, NULL, NULL);
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){20, 0}, sizeof(struct timeval));
    need(server >= 0 && write(client, "v2", 2) == 2 && read(server, word, 2) == 2, "accept");
    pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(1);
        if (read(server, word, 5) != 5 || write(server, word, 5) != 5) _exit(2);
        exit(0);
    }
    need(child > 0 && write(client, "hello", 5) == 5, "write");
    need(read(client, word, 5) == 5 && !memcmp(word, "hello", 5), "what came back");
    need(waitpid(child, &status, 0) == child, "waitpid");
    CHECKF(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with status %#x", status);
    close(server);
    close(client);
    close(listener);
}

CASE("luck.no-descriptors-left") {
    int fds[64], count = 0;
    open_pair();
    struct rlimit few = {(rlim_t)out + 8, (rlim_t)out + 8};
    need(!setrlimit(RLIMIT_NOFILE, &few), "setrlimit");
    while (count < 64 && (fds[count] = socket(AF_INET, SOCK_DGRAM, 0)) >= 0) count++;
    need(count < 64 && errno == EMFILE, "EMFILE");
    for (int round = 0; round < 3; round++) {
        busy(out);
        for (int i = COUNT / 2; i < COUNT; i++) take(in, i);
        need(dup(out) == -1 && errno == EMFILE, "dup with none left");
        need(socket(AF_INET, SOCK_DGRAM, 0) == -1 && errno == EMFILE, "socket with none left");
        close(fds[--count]);
        fds[count++] = dup(out);
        put(fds[count - 1], 7);
        take(in, 7);
    }
}

CASES {
    ADD(sandbox, 0, "luck.a-sandbox-by-prctl");
    ADD(sandbox, 1, "luck.a-sandbox-by-seccomp");
}

int main(int argc, char **argv) {
    static const struct program program = {.name = "luck"};

    return cases_main(argc, argv, &program);
}
