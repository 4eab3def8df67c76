/* A program that knows nothing of Weft: sends, and is interrupted all the time by a handler that sends as well, on the
   same socket and to the same destination.

       handler PORT        of 127.0.0.1, for two seconds

   Says how often the handler ran. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

static int to;
static struct sockaddr_in end;
static volatile sig_atomic_t handled;

static void send_one(void)
{
    static const char octets[1000];
    sendto(to, octets, sizeof octets, MSG_DONTWAIT, (struct sockaddr *)&end, sizeof end);
}

static void handle(int number)
{
    (void)number;
    handled++;
    send_one();
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    to = socket(AF_INET, SOCK_DGRAM, 0);
    end.sin_family = AF_INET;
    end.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    end.sin_port = htons(atoi(argv[1]));
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 50}, {0, 50}};
    setitimer(ITIMER_REAL, &often, NULL);
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        for (int number = 0; number < 100; number++)
            send_one();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begun.tv_sec < 2);
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, NULL);
    printf("%d\n", (int)handled);
    return 0;
}
