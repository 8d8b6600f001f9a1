/* A Jacobi iteration with halo exchange, the stencil of hither's demo: the same cells, the same blocks,
 * the same sums in the same order, so that the results are equal bit for bit.
 *
 *   halo-2d, halo-3d               faces by messages: irecv, isend, waitall
 *   halo-fence-2d, halo-fence-3d   faces by puts into the neighbours' slots, a fence each sweep
 *
 *   window of a rank:  | even sweeps | odd sweeps |, each: z below, z above, y below, ... x above */
#include "common.h"
#include "random.h"

enum { PROOF = 10, FACES = 6 };

static int cells[3], ranks[3], place[3], first[3], extent[3], ghost[3];
static long stride[3], slot;
static double *now_cells, *next_cells;
static double *out[FACES], *in[FACES], *slots;
static int neighbour[FACES];
static MPI_Win win;

/* Value of a cell of the grid with its rim before the first sweep. */
static double initial(long z, long y, long x)
{
    uint64_t index = (uint64_t)((z * (cells[1] + 2) + y) * (cells[2] + 2) + x);
    return (double)(number(stream(11), index) >> 11) / 9007199254740992.0;
}

static int cut(int axis, int i)
{
    return (int)((long)cells[axis] * i / ranks[axis]);
}

static int ceiling(int a, int b)
{
    return (a + b - 1) / b;
}

/* The division of the cells in which a rank sends least; the later axes stay whole among equals. */
static void divide(void)
{
    long best = -1;
    int z, y, axis;
    for (z = 1; z <= size; z++) {
        if (size % z)
            continue;
        for (y = 1; y <= size / z; y++) {
            int split[3];
            long surface = 0, block[3];
            if (size / z % y)
                continue;
            split[0] = z;
            split[1] = y;
            split[2] = size / z / y;
            if (split[0] > cells[0] || split[1] > cells[1] || split[2] > cells[2])
                continue;
            for (axis = 0; axis < 3; axis++)
                block[axis] = ceiling(cells[axis], split[axis]);
            for (axis = 0; axis < 3; axis++) {
                int sides = split[axis] - 1 < 2 ? split[axis] - 1 : 2;
                surface += sides * (block[0] * block[1] * block[2] / block[axis]);
            }
            /* Divisions come in ascending order. */
            if (best < 0 || surface < best) {
                best = surface;
                memcpy(ranks, split, sizeof ranks);
            }
        }
    }
    if (best < 0) {
        fprintf(stderr, "fewer cells than ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static long at(long z, long y, long x)
{
    return (z + ghost[0]) * stride[0] + (y + ghost[1]) * stride[1] + x + ghost[2];
}

static long face_length(int axis)
{
    return (long)extent[0] * extent[1] * extent[2] / extent[axis];
}

static void sweep(void)
{
    long z, y, x;
    double *swapped;
    for (z = 0; z < extent[0]; z++) {
        for (y = 0; y < extent[1]; y++) {
            const double *c = now_cells + at(z, y, 0);
            double *restrict to = next_cells + at(z, y, 0);
            const long north = stride[1], up = stride[0];
            if (ghost[0] == 0)
                for (x = 0; x < extent[2]; x++)
                    to[x] = ((c[x - north] + c[x + north]) + (c[x - 1] + c[x + 1])) * 0.25;
            else
                for (x = 0; x < extent[2]; x++)
                    to[x] = ((c[x - up] + c[x + up]) + (c[x - north] + c[x + north]) +
                             (c[x - 1] + c[x + 1])) * (1.0 / 6.0);
        }
    }
    swapped = now_cells;
    now_cells = next_cells;
    next_cells = swapped;
}

/* Between a face and the layer of cells that begins at `from`. */
static void layer(int axis, long from, double *face, int packs)
{
    const int outer = axis == 0 ? 1 : 0, inner = axis == 2 ? 1 : 2;
    long o, i, n = 0;
    for (o = 0; o < extent[outer]; o++)
        for (i = 0; i < extent[inner]; i++, n++) {
            double *cell = now_cells + from + o * stride[outer] + i * stride[inner];
            if (packs)
                face[n] = *cell;
            else
                *cell = face[n];
        }
}

static void pack(int face)
{
    int axis = face / 2, corner[3] = {0, 0, 0};
    if (face % 2)
        corner[axis] = extent[axis] - 1;
    layer(axis, at(corner[0], corner[1], corner[2]), out[face], 1);
}

static void unpack(int face, double *from)
{
    int axis = face / 2, corner[3] = {0, 0, 0};
    corner[axis] = face % 2 ? extent[axis] : 0;
    layer(axis, at(corner[0], corner[1], corner[2]) - (face % 2 ? 0 : stride[axis]), from, 0);
}

static void by_messages(long n)
{
    MPI_Request requests[2 * FACES];
    long i;
    int face, count;
    for (i = 0; i < n; i++) {
        count = 0;
        for (face = 0; face < FACES; face++)
            if (neighbour[face] >= 0)
                MPI_Irecv(in[face], (int)face_length(face / 2), MPI_DOUBLE, neighbour[face], face,
                          MPI_COMM_WORLD, &requests[count++]);
        for (face = 0; face < FACES; face++)
            if (neighbour[face] >= 0) {
                pack(face);
                MPI_Isend(out[face], (int)face_length(face / 2), MPI_DOUBLE, neighbour[face],
                          face ^ 1, MPI_COMM_WORLD, &requests[count++]);
            }
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        for (face = 0; face < FACES; face++)
            if (neighbour[face] >= 0)
                unpack(face, in[face]);
        sweep();
    }
}

static void by_fence(long n)
{
    long i;
    int face;
    MPI_Win_fence(0, win);
    for (i = 0; i < n; i++) {
        for (face = 0; face < FACES; face++)
            if (neighbour[face] >= 0) {
                int count = (int)face_length(face / 2);
                pack(face);
                MPI_Put(out[face], count, MPI_DOUBLE, neighbour[face],
                        (MPI_Aint)((i % 2 * FACES + (face ^ 1)) * slot), count, MPI_DOUBLE, win);
            }
        MPI_Win_fence(0, win);
        for (face = 0; face < FACES; face++)
            if (neighbour[face] >= 0)
                unpack(face, slots + (i % 2 * FACES + face) * slot);
        sweep();
    }
    MPI_Win_fence(0, win);
}

static void begin(int flat)
{
    long z, y, x, full[3], most = 1;
    int axis, face;
    for (axis = 0; axis < 3; axis++)
        cells[axis] = axis == 0 && flat ? 1 : (int)bytes;
    divide();
    place[0] = rank / (ranks[1] * ranks[2]);
    place[1] = rank / ranks[2] % ranks[1];
    place[2] = rank % ranks[2];
    for (axis = 0; axis < 3; axis++) {
        first[axis] = cut(axis, place[axis]);
        extent[axis] = cut(axis, place[axis] + 1) - first[axis];
        ghost[axis] = axis > 0 || !flat;
        full[axis] = extent[axis] + 2 * ghost[axis];
        most *= ceiling(cells[axis], ranks[axis]);
    }
    stride[0] = full[1] * full[2];
    stride[1] = full[2];
    stride[2] = 1;
    now_cells = memory(sizeof(double) * (size_t)(full[0] * full[1] * full[2]));
    next_cells = memory(sizeof(double) * (size_t)(full[0] * full[1] * full[2]));
    for (z = 0; z < full[0]; z++)
        for (y = 0; y < full[1]; y++)
            for (x = 0; x < full[2]; x++)
                now_cells[z * stride[0] + y * stride[1] + x] =
                    initial(first[0] + z, first[1] + y, first[2] + x);
    memcpy(next_cells, now_cells, sizeof(double) * (size_t)(full[0] * full[1] * full[2]));
    slot = 1;
    for (axis = 0; axis < 3; axis++) {
        long face_most = most / ceiling(cells[axis], ranks[axis]);
        if (ranks[axis] > 1 && face_most > slot)
            slot = face_most;
    }
    for (face = 0; face < FACES; face++) {
        int other[3];
        memcpy(other, place, sizeof other);
        other[face / 2] += face % 2 ? 1 : -1;
        neighbour[face] = other[face / 2] < 0 || other[face / 2] == ranks[face / 2]
                              ? -1
                              : (other[0] * ranks[1] + other[1]) * ranks[2] + other[2];
        out[face] = memory(sizeof(double) * (size_t)face_length(face / 2));
        in[face] = memory(sizeof(double) * (size_t)face_length(face / 2));
    }
    MPI_Win_allocate((MPI_Aint)(2 * FACES * slot * (long)sizeof(double)), sizeof(double),
                     MPI_INFO_NULL, MPI_COMM_WORLD, &slots, &win);
}

/* Some sweeps, and a fingerprint of all cells after them. */
static void prove_by(void (*run)(long))
{
    uint64_t mine = 0, value, index;
    long z, y, x;
    MPI_Barrier(MPI_COMM_WORLD);
    run(PROOF);
    for (z = 0; z < extent[0]; z++)
        for (y = 0; y < extent[1]; y++)
            for (x = 0; x < extent[2]; x++) {
                memcpy(&value, &now_cells[at(z, y, x)], sizeof value);
                index = (uint64_t)(((first[0] + z) * cells[1] + first[1] + y) * cells[2] +
                                   first[2] + x);
                mine ^= mark(index, value);
            }
    prove(mine);
}

static void begin_messages_2d(void)
{
    begin(1);
    prove_by(by_messages);
}

static void begin_messages_3d(void)
{
    begin(0);
    prove_by(by_messages);
}

static void begin_fence_2d(void)
{
    begin(1);
    prove_by(by_fence);
}

static void begin_fence_3d(void)
{
    begin(0);
    prove_by(by_fence);
}

static void end(void)
{
    int face;
    MPI_Win_free(&win);
    for (face = 0; face < FACES; face++) {
        free(out[face]);
        free(in[face]);
    }
    free(now_cells);
    free(next_cells);
}

static const struct workload all[] = {
    {"halo-2d", begin_messages_2d, by_messages, end, NANOSECONDS, 1, 1},
    {"halo-3d", begin_messages_3d, by_messages, end, NANOSECONDS, 1, 1},
    {"halo-fence-2d", begin_fence_2d, by_fence, end, NANOSECONDS, 1, 1},
    {"halo-fence-3d", begin_fence_3d, by_fence, end, NANOSECONDS, 1, 1},
};

int main(int argc, char **argv)
{
    return measure_all(argc, argv, all, sizeof all / sizeof *all);
}
