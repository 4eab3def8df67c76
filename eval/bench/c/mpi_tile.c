/* Tiles of one file through MPI-IO, with the access pattern and the parameters of MPI-Tile-IO: the processes have a
 * tile each of a picture that is a file, row by row; their rows lie apart in it, and tiles may overlap.
 *
 *   mpi_tile --file F --nr_tiles_x N --nr_tiles_y N --sz_tile_x N --sz_tile_y N --sz_element N
 *            [--overlap_x N] [--overlap_y N] [--collective] [--write] [--hint KEY=VALUE]... --seconds N
 *
 * All processes write or read their tile, wait for each other, and do so again until the time is over. What is written
 * differs from pass to pass, and is read back after the last one, by the process itself and by its neighbour, which is
 * on another host; what is read is compared in each pass. Prints a JSON object, or says what is wrong and fails. */
#include <getopt.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PASSES_MAX = 1 << 20 };
/* How long a process that waits for the others sleeps between two looks: it would take the servers' cores. */
enum { PAUSE_US = 50 };
/* How long all serve each other's last messages before they end. */
#define PARTING_S 0.2

static long nr[2], size[2], overlap[2], element, seconds;
static int collective, writes, rank, ranks;
static const char *name;
static MPI_Info hints;

static void fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "mpi_tile: process %d: ", rank);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void check(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &len);
    fail("%s: %s", what, text);
}

static long number(const char *text, const char *of, long least, long most)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == 0 || *end != 0 || n < least || n > most)
        fail("--%s is %s, and has to be %ld to %ld", of, text, least, most);
    return n;
}

static void options(int argc, char **argv)
{
    static const struct option known[] = {
        {"file", 1, 0, 'f'},       {"nr_tiles_x", 1, 0, 'x'}, {"nr_tiles_y", 1, 0, 'y'}, {"sz_tile_x", 1, 0, 'X'},
        {"sz_tile_y", 1, 0, 'Y'},  {"sz_element", 1, 0, 'e'}, {"overlap_x", 1, 0, 'o'},  {"overlap_y", 1, 0, 'O'},
        {"collective", 0, 0, 'c'}, {"write", 0, 0, 'w'},      {"hint", 1, 0, 'h'},       {"seconds", 1, 0, 's'},
        {0, 0, 0, 0}};
    int which, at;
    seconds = -1;
    while ((which = getopt_long(argc, argv, "", known, &at)) != -1) {
        const char *of = which == '?' ? "" : known[at].name;
        char *value;
        switch (which) {
        case 'f': name = optarg; break;
        case 'x': nr[0] = number(optarg, of, 1, 1000); break;
        case 'y': nr[1] = number(optarg, of, 1, 1000); break;
        case 'X': size[0] = number(optarg, of, 1, 1 << 20); break;
        case 'Y': size[1] = number(optarg, of, 1, 1 << 20); break;
        case 'e': element = number(optarg, of, 1, 1 << 20); break;
        case 'o': overlap[0] = number(optarg, of, 0, 1 << 20); break;
        case 'O': overlap[1] = number(optarg, of, 0, 1 << 20); break;
        case 's': seconds = number(optarg, of, 0, 86400); break;
        case 'c': collective = 1; break;
        case 'w': writes = 1; break;
        case 'h':
            value = strchr(optarg, '=');
            if (value == NULL || value == optarg)
                fail("--hint is %s, and has to be KEY=VALUE", optarg);
            *value = 0;
            check(MPI_Info_set(hints, optarg, value + 1), "a hint");
            break;
        default: fail("what it is told makes no sense");
        }
    }
    if (optind < argc)
        fail("%s is no option", argv[optind]);
    if (name == NULL || seconds < 0 || !nr[0] || !nr[1] || !size[0] || !size[1] || !element)
        fail("wanted: file, nr_tiles_x, nr_tiles_y, sz_tile_x, sz_tile_y, sz_element, seconds");
    if (nr[0] * nr[1] != ranks)
        fail("%ld by %ld tiles, and %d processes", nr[0], nr[1], ranks);
    if (overlap[0] >= size[0] || overlap[1] >= size[1])
        fail("tiles overlap by less than their size");
    if (size[0] * size[1] > (1L << 30) / element)
        fail("a tile has 1 GiB at most");
}

/* Elements of the picture across and down. */
static long across(int axis) { return nr[axis] * size[axis] - (nr[axis] - 1) * overlap[axis]; }

/* Where the tile of a process begins. */
static long begins(int of, int axis)
{
    long place = axis == 0 ? of % nr[0] : of / nr[0];
    return place * (size[axis] - overlap[axis]);
}

/* What the octet at this place of the file is in this pass. */
static uint8_t octet(uint64_t at, uint64_t pass)
{
    uint64_t word = (at / 8 + 1) * 0x9e3779b97f4a7c15u + pass * 0xd1b54a32d192ed03u;
    word ^= word >> 29;
    word *= 0xbf58476d1ce4e5b9u;
    return (uint8_t)(word >> (at % 8 * 8));
}

/* Fills the tile of a process, or compares it. */
static void each(uint8_t *tile, int of, uint64_t pass, int compares)
{
    for (long y = 0; y < size[1]; y++) {
        uint64_t at = ((begins(of, 1) + y) * across(0) + begins(of, 0)) * element;
        for (long i = 0; i < size[0] * element; i++, at++, tile++) {
            if (!compares)
                *tile = octet(at, pass);
            else if (*tile != octet(at, pass))
                fail("octet %llu of the file is %d and not %d", (unsigned long long)at, *tile, octet(at, pass));
        }
    }
}

static void meet(void)
{
    MPI_Request request;
    int over = 0;
    check(MPI_Ibarrier(MPI_COMM_WORLD, &request), "meet");
    for (;;) {
        check(MPI_Test(&request, &over, MPI_STATUS_IGNORE), "meet");
        if (over)
            return;
        usleep(PAUSE_US);
    }
}

/* The part of the file that is a process's tile. */
static void view(MPI_File file, int of)
{
    int whole[2] = {(int)across(1), (int)across(0)}, own[2] = {(int)size[1], (int)size[0]};
    int start[2] = {(int)begins(of, 1), (int)begins(of, 0)};
    MPI_Datatype one, tile;
    check(MPI_Type_contiguous((int)element, MPI_BYTE, &one), "a type");
    check(MPI_Type_commit(&one), "a type");
    check(MPI_Type_create_subarray(2, whole, own, start, MPI_ORDER_C, one, &tile), "a tile");
    check(MPI_Type_commit(&tile), "a tile");
    check(MPI_File_set_view(file, 0, one, tile, "native", hints), "set the view");
    check(MPI_Type_free(&tile), "a tile");
    check(MPI_Type_free(&one), "a type");
}

static void move(MPI_File file, uint8_t *tile, int out)
{
    MPI_Status status;
    int octets = (int)(size[0] * size[1] * element), moved = 0;
    if (out && collective)
        check(MPI_File_write_at_all(file, 0, tile, octets, MPI_BYTE, &status), "write together");
    else if (out)
        check(MPI_File_write_at(file, 0, tile, octets, MPI_BYTE, &status), "write");
    else if (collective)
        check(MPI_File_read_at_all(file, 0, tile, octets, MPI_BYTE, &status), "read together");
    else
        check(MPI_File_read_at(file, 0, tile, octets, MPI_BYTE, &status), "read");
    check(MPI_Get_count(&status, MPI_BYTE, &moved), "count");
    if (moved != octets)
        fail("%d octets of %d were %s", moved, octets, out ? "written" : "read");
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void figures(double *took, long passes, double sum)
{
    double octets = (double)passes * ranks * size[0] * size[1] * element;
    qsort(took, passes, sizeof *took, by_time);
    printf("{\"goodput_gbit_s\": %.9g, \"request_us\": %.3f, \"p99_us\": %.3f, \"operations\": %ld}\n",
           octets * 8 / sum / 1e9, took[passes / 2] * 1e6, took[passes * 99 / 100] * 1e6, passes * ranks);
}

/* Passes until the time is over, as the first process has it. */
static void measure(MPI_File file, uint8_t *tile)
{
    double *took = malloc(PASSES_MAX * sizeof *took), sum = 0;
    long passes = 0;
    int again = 1;
    if (took == NULL)
        fail("no memory for the times");
    while (again) {
        if (writes)
            each(tile, rank, passes + 1, 0);
        else
            memset(tile, 0, size[0] * size[1] * element);
        meet();
        double begun = MPI_Wtime();
        move(file, tile, writes);
        meet();
        took[passes] = MPI_Wtime() - begun;
        sum += took[passes++];
        if (!writes)
            each(tile, rank, 0, 1);
        again = sum < seconds && passes < PASSES_MAX;
        check(MPI_Bcast(&again, 1, MPI_INT, 0, MPI_COMM_WORLD), "go on");
    }
    for (int of = rank; writes && of < rank + 2; of++) {
        view(file, of % ranks);
        move(file, tile, 0);
        each(tile, of % ranks, passes, 1);
    }
    meet();
    if (rank == 0)
        figures(took, passes, sum);
    free(took);
}

/* A message from each process to each: their connections are there before anything is measured. */
static void greet(void)
{
    for (int to = 1; to < ranks; to++) {
        int said = rank, heard = -1;
        check(MPI_Sendrecv(&said, 1, MPI_INT, (rank + to) % ranks, 0, &heard, 1, MPI_INT, (rank + ranks - to) % ranks,
                           0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "greet");
    }
}

/* Ends without MPI_Finalize, in which MPICH 4.0 over UCX may wait for ever: one process still flushes a connection
 * while the others, which would answer, wait for the process manager and look no more. Nothing is left to be done but
 * to say to the process manager that this is the end (PMI 1, where MPI_Finalize would say so too). */
static void part(void)
{
    double until = MPI_Wtime() + PARTING_S;
    const char *manager = getenv("PMI_FD");
    char answer[64];
    int there, is_told = 1;
    while (MPI_Wtime() < until) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        usleep(PAUSE_US);
    }
    if (manager != NULL)
        is_told = dprintf(atoi(manager), "cmd=finalize\n") > 0 && read(atoi(manager), answer, sizeof answer) > 0;
    _exit(fflush(stdout) == 0 && is_told ? 0 : 1);
}

int main(int argc, char **argv)
{
    MPI_File file;
    uint8_t *tile;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check(MPI_Info_create(&hints), "hints");
    options(argc, argv);
    greet();
    tile = malloc(size[0] * size[1] * element);
    if (tile == NULL)
        fail("no memory for a tile");
    check(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, hints, &file), "open the file");
    view(file, rank);
    each(tile, rank, 0, 0);
    move(file, tile, 1);
    meet();
    measure(file, tile);
    check(MPI_File_close(&file), "close the file");
    MPI_Info_free(&hints);
    free(tile);
    part();
}
