/* Breadth-first search on the generated graph of Graph 500, one-sided: reaching a vertex is an
 * accumulate of the minimum on its owner's word (level << 32 | parent), and another that notes it for its
 * owner; a level ends with a flush and a barrier. Who owns vertex v is rank v mod ranks. The graph and the
 * roots are those of hither's demo (tools/src/demo/graph), and so are the five rules that every tree of
 * the first searches is checked by.
 *
 *   window of a rank:  | words, one a vertex | notes, even levels | notes, odd levels | */
#include "common.h"
#include "random.h"

enum { ROOTS = 8, FACTOR = 16, MANY = 1024 };
/* Not all ones: MPICH 4.0 takes the minimum of unsigned numbers as if they were signed. */
static const uint64_t SEED = 1, UNREACHED = ~(uint64_t)0 >> 1;
static const uint32_t NONE = ~(uint32_t)0;

static MPI_Win win;
static uint64_t *part, *seen;
static uint32_t vertices, scrambles[4], *columns, roots[ROOTS], (*edges)[2];
static long owned, capacity, notes, *rows, edge_count;
static double inside[ROOTS];
static int next_root;
/* What accumulates take, until they are completed. */
static uint64_t operands[2 * MANY];
static int pending;

static uint32_t scrambled(uint32_t x)
{
    uint32_t mask = vertices - 1;
    int fold = (int)(bytes + 1) / 2, i;
    for (i = 0; i < 4; i++) {
        x = (x * scrambles[i] + (scrambles[i] >> 7)) & mask;
        x ^= x >> fold;
    }
    return x;
}

static void make_edge(uint64_t key, uint64_t index, uint32_t *edge)
{
    const uint64_t a = (uint64_t)(0.57 * 4294967296.0), ab = (uint64_t)(0.76 * 4294967296.0);
    const uint64_t abc = (uint64_t)(0.95 * 4294967296.0);
    uint64_t bits = child(key, index);
    uint32_t from = 0, to = 0;
    int level;
    for (level = 0; level < bytes; level++) {
        uint64_t draw = number(bits, (uint64_t)(level / 2)) >> (32 * (level % 2)) & 0xffffffff;
        from = from << 1 | (draw >= ab);
        to = to << 1 | ((draw >= a && draw < ab) || draw >= abc);
    }
    edge[0] = scrambled(from);
    edge[1] = scrambled(to);
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int has(const uint64_t *set, uint32_t at)
{
    return (int)(set[at / 64] >> (at % 64) & 1);
}

static void add(uint64_t *set, uint32_t at)
{
    set[at / 64] |= (uint64_t)1 << (at % 64);
}

/* The rows of this rank's vertices, its slice of the edges, and the roots. Every rank makes all edges: that
 * is not timed. */
static void build(void)
{
    const uint64_t key = stream(SEED), keys = stream(SEED ^ 0x5ca1ab1e);
    const uint64_t draw = stream(SEED ^ 0x00070075);
    uint64_t all, i, from, to, *joined;
    uint32_t edge[2];
    long *place, row, end = 0;
    int pass, side, count = 0, k;
    vertices = (uint32_t)1 << bytes;
    all = (uint64_t)FACTOR << bytes;
    for (k = 0; k < 4; k++)
        scrambles[k] = (uint32_t)number(keys, (uint64_t)k) | 1;
    owned = ((long)vertices + size - 1 - rank) / size;
    capacity = ((long)vertices + size - 1) / size;
    from = all * (uint64_t)rank / (uint64_t)size;
    to = all * (uint64_t)(rank + 1) / (uint64_t)size;
    edge_count = (long)(to - from);
    edges = malloc(sizeof *edges * (size_t)(edge_count + 1));
    joined = calloc(vertices / 64 + 1, 8);
    rows = calloc((size_t)owned + 2, sizeof *rows);
    place = calloc((size_t)owned + 1, sizeof *place);
    for (pass = 0; pass < 2; pass++) {
        for (i = 0; i < all; i++) {
            make_edge(key, i, edge);
            if (pass == 0 && i >= from && i < to)
                memcpy(edges[i - from], edge, sizeof edge);
            if (edge[0] == edge[1])
                continue;
            for (side = 0; side < 2; side++) {
                uint32_t v = edge[side];
                add(joined, v);
                if ((int)(v % (uint32_t)size) != rank)
                    continue;
                if (pass == 0)
                    rows[v / (uint32_t)size + 1]++;
                else
                    columns[place[v / (uint32_t)size]++] = edge[1 - side];
            }
        }
        if (pass == 0) {
            for (row = 0; row < owned; row++)
                rows[row + 1] += rows[row];
            memcpy(place, rows, sizeof *place * (size_t)owned);
            columns = malloc(sizeof *columns * (size_t)(rows[owned] + 1));
        }
    }
    /* Ascending, and each neighbour once. */
    for (row = 0; row < owned; row++) {
        long first = rows[row], last = row + 1 < owned ? rows[row + 1] : rows[owned], at, begun = end;
        qsort(columns + first, (size_t)(last - first), sizeof *columns, by_number);
        for (at = first; at < last; at++)
            if (end == begun || columns[end - 1] != columns[at])
                columns[end++] = columns[at];
        rows[row] = begun;
    }
    rows[owned] = end;
    for (i = 0; count < ROOTS && i < 64 * ROOTS; i++) {
        uint32_t v = (uint32_t)below(draw, i, vertices);
        for (k = 0; k < count && roots[k] != v; k++)
            ;
        if (k == count && has(joined, v))
            roots[count++] = v;
    }
    if (count < ROOTS) {
        fprintf(stderr, "too few roots\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    free(place);
    free(joined);
}

static void reach(uint32_t v, uint64_t word)
{
    const int whose = (int)(v % (uint32_t)size);
    const long at = v / (uint32_t)size;
    uint64_t *operand = operands + 2 * pending;
    const uint64_t level = word >> 32;
    operand[0] = word;
    operand[1] = (uint64_t)1 << (at % 64);
    MPI_Accumulate(&operand[0], 1, MPI_UINT64_T, whose, at, 1, MPI_UINT64_T, MPI_MIN, win);
    MPI_Accumulate(&operand[1], 1, MPI_UINT64_T, whose,
                   capacity + (long)(level % 2) * notes + at / 64, 1, MPI_UINT64_T, MPI_BOR, win);
    /* Libraries keep something for every operation that is under way. */
    if (++pending == MANY) {
        MPI_Win_flush_all(win);
        pending = 0;
    }
}

static void search(uint32_t root)
{
    static uint32_t *frontier;
    static long room;
    long count = 0, i, at, total;
    uint64_t level;
    if (room < capacity) {
        free(frontier);
        frontier = malloc(sizeof *frontier * (size_t)capacity);
        room = capacity;
    }
    for (i = 0; i < capacity; i++)
        part[i] = UNREACHED;
    memset(part + capacity, 0, 8 * (size_t)(2 * notes));
    memset(seen, 0, 8 * (vertices / 64 + 1));
    add(seen, root);
    if ((int)(root % (uint32_t)size) == rank) {
        part[root / (uint32_t)size] = root;
        frontier[count++] = root;
    }
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (level = 1;; level++) {
        uint64_t *note = part + capacity + (long)(level % 2) * notes;
        for (i = 0; i < count; i++) {
            const long row = frontier[i] / (uint32_t)size;
            for (at = rows[row]; at < rows[row + 1]; at++) {
                uint32_t v = columns[at];
                if (has(seen, v))
                    continue;
                add(seen, v);
                reach(v, level << 32 | frontier[i]);
            }
        }
        MPI_Win_flush_all(win);
        pending = 0;
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_sync(win);
        count = 0;
        for (i = 0; i < notes; i++)
            for (; note[i]; note[i] &= note[i] - 1) {
                at = i * 64 + __builtin_ctzll(note[i]);
                /* Noted in vain if an earlier level had reached it. */
                if (part[at] >> 32 == level) {
                    frontier[count] = (uint32_t)at * (uint32_t)size + (uint32_t)rank;
                    add(seen, frontier[count++]);
                }
            }
        MPI_Win_sync(win);
        MPI_Allreduce(&count, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (total == 0)
            break;
    }
}

/* From one root after the other. */
static void searches(long n)
{
    double edges_inside = 0;
    long i;
    MPI_Win_lock_all(0, win);
    for (i = 0; i < n; i++) {
        search(roots[next_root]);
        edges_inside += inside[next_root];
        next_root = (next_root + 1) % ROOTS;
    }
    MPI_Win_unlock_all(win);
    counted = edges_inside;
}

static void refuse(uint32_t root, const char *why, uint32_t v)
{
    fprintf(stderr, "root %u: %s: vertex %u\n", root, why, v);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Levels from the tree alone: no cycles, everything hangs on the root. */
static void climb(uint32_t root, const uint32_t *parents, uint32_t *levels)
{
    uint32_t *path = malloc(sizeof *path * vertices), start;
    const uint32_t open = NONE - 1;
    memset(levels, 0xff, sizeof *levels * vertices);
    if (parents[root] != root)
        refuse(root, "it is not its own parent", root);
    levels[root] = 0;
    for (start = 0; start < vertices; start++) {
        uint32_t at = start, length = 0, level;
        if (parents[start] == NONE)
            continue;
        while (levels[at] == NONE) {
            levels[at] = open;
            path[length++] = at;
            if (parents[at] >= vertices)
                refuse(root, "a parent is not in the tree", at);
            at = parents[at];
        }
        if (levels[at] == open)
            refuse(root, "it is its own ancestor", at);
        level = levels[at];
        while (length > 0)
            levels[path[--length]] = ++level;
    }
    free(path);
}

/* Searches from a root and checks the tree; what that adds to the fingerprint. */
static uint64_t checked(int which)
{
    const uint32_t root = roots[which];
    uint32_t *parents = malloc(sizeof *parents * vertices), v;
    uint32_t *levels = malloc(sizeof *levels * vertices);
    uint64_t *all = malloc(8 * (size_t)capacity * (size_t)size), proof = 0;
    const size_t words = vertices / 64 + 1;
    uint64_t *joined = calloc(words, 8);
    double here = 0;
    long i;
    MPI_Win_lock_all(0, win);
    search(root);
    MPI_Win_unlock_all(win);
    MPI_Allgather(part, (int)capacity, MPI_UINT64_T, all, (int)capacity, MPI_UINT64_T,
                  MPI_COMM_WORLD);
    for (v = 0; v < vertices; v++) {
        uint64_t word = all[v % (uint32_t)size * (size_t)capacity + v / (uint32_t)size];
        parents[v] = word == UNREACHED ? NONE : (uint32_t)word;
    }
    climb(root, parents, levels);
    for (i = 0; i < edge_count; i++) {
        const uint32_t a = edges[i][0], b = edges[i][1], la = levels[a], lb = levels[b];
        if ((la == NONE) != (lb == NONE))
            refuse(root, "an edge leaves the tree", a);
        if (la == NONE)
            continue;
        if (la > lb + 1 || lb > la + 1)
            refuse(root, "an edge skips a level", a);
        here++;
        if (parents[a] == b)
            add(joined, a);
        if (parents[b] == a)
            add(joined, b);
    }
    MPI_Allreduce(&here, &inside[which], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, joined, (int)words, MPI_UINT64_T, MPI_BOR, MPI_COMM_WORLD);
    for (v = 0; v < vertices; v++) {
        if (parents[v] == NONE)
            continue;
        if (v != root && !has(joined, v))
            refuse(root, "no edge joins it and its parent", v);
        if ((int)(v % (uint32_t)size) == rank)
            proof ^= mark((uint64_t)which << 32 | v, levels[v]);
    }
    if (rank == 0)
        say_alive();
    free(parents);
    free(levels);
    free(all);
    free(joined);
    return proof;
}

static void begin(void)
{
    uint64_t proof = 0;
    int which;
    build();
    notes = (capacity + 63) / 64;
    /* In pages: see genome.c. */
    MPI_Win_allocate((MPI_Aint)((8 * (capacity + 2 * notes) + 4095) / 4096 * 4096), 8,
                     MPI_INFO_NULL, MPI_COMM_WORLD, &part, &win);
    seen = calloc(vertices / 64 + 1, 8);
    for (which = 0; which < ROOTS; which++)
        proof ^= checked(which);
    next_root = 0;
    prove(proof);
}

static void end(void)
{
    MPI_Win_free(&win);
    free(seen);
    free(rows);
    free(columns);
    free(edges);
}

static const struct workload all[] = {
    {"bfs", begin, searches, end, MILLIONS_PER_SECOND, 1, 1},
};

int main(int argc, char **argv)
{
    return measure_all(argc, argv, all, sizeof all / sizeof *all);
}
