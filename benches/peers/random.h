/* The random numbers of hither's demo (tools/src/demo/random.rs): the i-th number of a stream is a
 * function of (seed, i), so that these programs have the same inputs. And fingerprints of results. */
#ifndef PEERS_RANDOM_H
#define PEERS_RANDOM_H

#include <stdint.h>

static inline uint64_t avalanche(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    x *= 0xa0761d6478bd642fu;
    return x ^ (x >> 32);
}

/* The key of a seed's stream. */
static inline uint64_t stream(uint64_t seed)
{
    return avalanche(avalanche(seed ^ 0x5851f42d4c957f2du) + 1);
}

/* Number `index` of a stream. */
static inline uint64_t number(uint64_t key, uint64_t index)
{
    return avalanche(index * 0x9e3779b97f4a7c15u + key);
}

/* An independent stream, for the `index`-th object. */
static inline uint64_t child(uint64_t key, uint64_t index)
{
    return avalanche(number(key, index) ^ 0x2545f4914f6cdd1du);
}

/* A number below `bound`. */
static inline uint64_t below(uint64_t key, uint64_t index, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)number(key, index) * bound) >> 64);
}

/* What a value at a place adds to a fingerprint, by exclusive or: in any order. */
static inline uint64_t mark(uint64_t place, uint64_t value)
{
    return avalanche(value ^ avalanche(place + 1));
}

#endif
