/* Remote search, one-sided: the words of a genome are kept by the ranks that their hashes name, in a
 * window each; whoever asks gets what it needs from there, for a hundred queries at a time: the bounds
 * of a bucket, its keys, the place of the positions, the positions. Genome, index and queries are those
 * of hither's demo (tools/src/demo/genome).
 *
 *   window   0: buckets B   1: words K   2: positions E   3: directory, B + 1   keys, K
 *            first position of each key, K + 1            positions, E */
#include "common.h"
#include "random.h"
#include <unistd.h>

enum { LENGTH = 20, BATCH = 100, DIRECTORY = 3 };
static const char BASES[] = "ACGT";
static const uint64_t SEED = 1;

struct entry {
    uint64_t bucket, code, position;
};

/* A query under way. */
struct query {
    uint64_t code, bounds[2], firsts[2];
    long at, keys, positions; /* its number among ours; places of what was got */
    int here;
};

static MPI_Win win;
static uint64_t *part, (*headers)[3];
static char *bases;
static long length;
static uint64_t *codes;
static unsigned char *known;
static long first_query, queries;
static long *starts, *counts;
/* Keys of one batch, and positions of all queries. */
static uint64_t *keys, *found;
static long keys_room, found_room, found_length;

static void *room(void *old, long *have, long want)
{
    if (want > *have) {
        *have = want + want / 2 + 1024;
        old = realloc(old, sizeof(uint64_t) * (size_t)*have);
        if (!old) {
            fprintf(stderr, "out of memory\n");
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    return old;
}

static void read_genome(void)
{
    char path[4096], line[4096], *slash;
    long have = 0;
    int records = 0;
    FILE *file;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
    path[n < 0 ? 0 : n] = 0;
    slash = strrchr(path, '/');
    strcpy(slash ? slash + 1 : path, "genome.fa");
    file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "no genome beside the program\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
        return;
    }
    length = 0;
    while (fgets(line, sizeof line, file)) {
        const char *c = line;
        if (length + (long)sizeof line > have) {
            have = 2 * have + (long)sizeof line;
            bases = realloc(bases, (size_t)have);
        }
        if (*c == '>') {
            if (records++ > 0)
                bases[length++] = 'N';
            continue;
        }
        for (; *c > ' '; c++) {
            char base = (char)(*c & ~0x20);
            base = base == 'U' ? 'T' : base;
            bases[length++] = strchr(BASES, base) ? base : 'N';
        }
    }
    fclose(file);
}

static int digit(char base)
{
    const char *at = strchr(BASES, base);
    return at && base ? (int)(at - BASES) : -1;
}

static int code_of(const char *word, uint64_t *code)
{
    int i;
    *code = 0;
    for (i = 0; i < LENGTH; i++) {
        int d = digit(word[i]);
        if (d < 0)
            return 0;
        *code = *code << 2 | (uint64_t)d;
    }
    return 1;
}

static int owner(uint64_t code)
{
    return (int)(((avalanche(code) >> 32) * (uint64_t)size) >> 32);
}

static int by_bucket(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->bucket != y->bucket)
        return x->bucket < y->bucket ? -1 : 1;
    if (x->code != y->code)
        return x->code < y->code ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

/* This rank's index, in its part of the window. */
static void build(void)
{
    struct entry *entries = malloc(sizeof *entries * (size_t)(length + 1));
    long i, count = 0, words = 0, most;
    uint64_t buckets = 1, code, *directory, *key, *first, *position;
    for (i = 0; i + LENGTH <= length; i++)
        if (code_of(bases + i, &code) && owner(code) == rank) {
            entries[count].code = code;
            entries[count++].position = (uint64_t)i;
        }
    while (buckets < (uint64_t)count)
        buckets *= 2;
    for (i = 0; i < count; i++)
        entries[i].bucket = avalanche(entries[i].code) & (buckets - 1);
    qsort(entries, (size_t)count, sizeof *entries, by_bucket);
    for (i = 0; i < count; i++)
        words += i == 0 || entries[i].code != entries[i - 1].code;
    /* As much for each, in pages: MPICH 4.0 reads other ranks' parts some words off otherwise. */
    most = 8 * (DIRECTORY + (long)buckets + 1 + 2 * words + 1 + count);
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    MPI_Win_allocate((MPI_Aint)((most + 4095) / 4096 * 4096), 8, MPI_INFO_NULL, MPI_COMM_WORLD,
                     &part, &win);
    part[0] = buckets;
    part[1] = (uint64_t)words;
    part[2] = (uint64_t)count;
    directory = part + DIRECTORY;
    key = directory + buckets + 1;
    first = key + words;
    position = first + words + 1;
    memset(directory, 0, 8 * (buckets + 1));
    for (i = 0; i < count; i++) {
        if (i == 0 || entries[i].code != entries[i - 1].code) {
            *key++ = entries[i].code;
            *first++ = (uint64_t)i;
            directory[entries[i].bucket + 1]++;
        }
        position[i] = entries[i].position;
    }
    *first = (uint64_t)count;
    for (i = 0; i < (long)buckets; i++)
        directory[i + 1] += directory[i];
    free(entries);
    headers = malloc(sizeof *headers * (size_t)size);
    MPI_Allgather(part, 3, MPI_UINT64_T, headers, 3, MPI_UINT64_T, MPI_COMM_WORLD);
}

/* Half of the queries are words of the genome, three tenths such with bases exchanged, the rest random. */
static void make_query(uint64_t index, char *word)
{
    uint64_t draw = child(stream(SEED), index), kind = below(draw, 0, 10), change, changes;
    int i;
    if (kind >= 8) {
        for (i = 0; i < LENGTH; i++)
            word[i] = BASES[below(draw, 1 + (uint64_t)i, 4)];
        return;
    }
    memcpy(word, bases + below(draw, 1, (uint64_t)(length - LENGTH + 1)), LENGTH);
    if (kind >= 5) {
        changes = 1 + below(draw, 2, 3);
        for (change = 0; change < changes; change++)
            word[below(draw, 3 + 2 * change, LENGTH)] = BASES[below(draw, 4 + 2 * change, 4)];
    }
}

static void get(void *into, int whose, uint64_t from, uint64_t count)
{
    MPI_Get(into, (int)count, MPI_UINT64_T, whose, (MPI_Aint)from, (int)count, MPI_UINT64_T, win);
}

/* Looks up a batch of words that one rank has: four round trips for all of them. */
static void ask(int whose, struct query *batch, int count)
{
    const uint64_t buckets = headers[whose][0], keys_at = DIRECTORY + buckets + 1;
    const uint64_t firsts_at = keys_at + headers[whose][1];
    const uint64_t positions_at = firsts_at + headers[whose][1] + 1;
    long all = 0;
    int i;
    for (i = 0; i < count; i++)
        get(batch[i].bounds, whose, DIRECTORY + (avalanche(batch[i].code) & (buckets - 1)), 2);
    MPI_Win_flush(whose, win);
    for (i = 0; i < count; i++) {
        batch[i].keys = all;
        all += (long)(batch[i].bounds[1] - batch[i].bounds[0]);
    }
    keys = room(keys, &keys_room, all);
    for (i = 0; i < count; i++)
        if (batch[i].bounds[1] > batch[i].bounds[0])
            get(keys + batch[i].keys, whose, keys_at + batch[i].bounds[0],
                batch[i].bounds[1] - batch[i].bounds[0]);
    MPI_Win_flush(whose, win);
    for (i = 0; i < count; i++) {
        long n = (long)(batch[i].bounds[1] - batch[i].bounds[0]), k = 0;
        while (k < n && keys[batch[i].keys + k] != batch[i].code)
            k++;
        batch[i].here = k < n;
        if (batch[i].here)
            get(batch[i].firsts, whose, firsts_at + batch[i].bounds[0] + (uint64_t)k, 2);
    }
    MPI_Win_flush(whose, win);
    all = found_length;
    for (i = 0; i < count; i++)
        if (batch[i].here) {
            starts[batch[i].at] = all;
            counts[batch[i].at] = (long)(batch[i].firsts[1] - batch[i].firsts[0]);
            all += counts[batch[i].at];
        }
    found = room(found, &found_room, all);
    for (i = 0; i < count; i++)
        if (batch[i].here)
            get(found + starts[batch[i].at], whose, positions_at + batch[i].firsts[0],
                batch[i].firsts[1] - batch[i].firsts[0]);
    MPI_Win_flush(whose, win);
    found_length = all;
}

/* All of this rank's queries. */
static void search(void)
{
    static struct query *batches;
    static int *filled;
    long i;
    int whose;
    if (!batches) {
        batches = malloc(sizeof *batches * BATCH * (size_t)size);
        filled = malloc(sizeof *filled * (size_t)size);
    }
    memset(filled, 0, sizeof *filled * (size_t)size);
    memset(counts, 0, sizeof *counts * (size_t)(queries + 1));
    found_length = 0;
    for (i = 0; i < queries; i++) {
        struct query *query;
        if (!known[i])
            continue;
        whose = owner(codes[i]);
        query = &batches[whose * BATCH + filled[whose]++];
        query->code = codes[i];
        query->at = i;
        if (filled[whose] == BATCH) {
            ask(whose, batches + whose * BATCH, BATCH);
            filled[whose] = 0;
        }
    }
    for (whose = 0; whose < size; whose++)
        if (filled[whose] > 0)
            ask(whose, batches + whose * BATCH, filled[whose]);
}

static void searches(long n)
{
    long i;
    MPI_Win_lock_all(0, win);
    for (i = 0; i < n; i++)
        search();
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    counted = (double)n * (double)bytes;
}

static void begin(void)
{
    char word[LENGTH];
    uint64_t mine = 0;
    long i, k;
    read_genome();
    build();
    first_query = bytes * rank / size;
    queries = bytes * (rank + 1) / size - first_query;
    codes = memory(sizeof *codes * (size_t)queries);
    known = memory((size_t)queries);
    starts = memory(sizeof *starts * (size_t)(queries + 1));
    counts = memory(sizeof *counts * (size_t)(queries + 1));
    for (i = 0; i < queries; i++) {
        make_query((uint64_t)(first_query + i), word);
        known[i] = (unsigned char)code_of(word, &codes[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    searches(1);
    for (i = 0; i < queries; i++)
        for (k = 0; k < counts[i]; k++)
            mine ^= mark((uint64_t)(first_query + i), found[starts[i] + k]);
    prove(mine);
}

static void end(void)
{
    MPI_Win_free(&win);
    free(headers);
    free(codes);
    free(known);
    free(starts);
    free(counts);
}

static const struct workload all[] = {
    {"genome", begin, searches, end, MILLIONS_PER_SECOND, 1, 1},
};

int main(int argc, char **argv)
{
    return measure_all(argc, argv, all, sizeof all / sizeof *all);
}
