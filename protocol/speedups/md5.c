/* MD5 (RFC 1321) of several short strings in parallel, one in each lane of a vector: each step of MD5 depends on the
 * previous one, so that a processor would be idle with a single string. */
#include "speedups.h"

enum { LANES = 16, BLOCK = 64 };
typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));

static const uint32_t sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};
static const uint8_t turns[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
static const uint8_t strides[4][2] = {{1, 0}, {5, 1}, {3, 5}, {7, 0}};

/* Process one block of every lane; `words[i]` is word i of the blocks. */
static inline __attribute__((always_inline)) void compress(lanes state[4], const lanes words[16])
{
    lanes a = state[0], b = state[1], c = state[2], d = state[3];
#pragma GCC unroll 64
    for (int step = 0; step < 64; step++) {
        int round = step >> 4;
        uint32_t turn = turns[round][step & 3];
        lanes mixed = round == 0 ? (d ^ (b & (c ^ d)))
                    : round == 1 ? (c ^ (d & (b ^ c)))
                    : round == 2 ? (b ^ c ^ d)
                                 : (c ^ (b | ~d));
        lanes sum = a + mixed + sines[step] + words[(step * strides[round][0] + strides[round][1]) & 15];
        a = d, d = c, c = b;
        b += sum << turn | sum >> (32 - turn);
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
}

static void compress_plain(lanes state[4], const lanes words[16]) { compress(state, words); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void compress_avx2(lanes state[4], const lanes words[16])
{
    compress(state, words);
}

__attribute__((target("avx512f"))) static void compress_avx512(lanes state[4], const lanes words[16])
{
    compress(state, words);
}
#endif

static void compress_best(lanes state[4], const lanes words[16])
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        compress_avx512(state, words);
    else if (__builtin_cpu_supports("avx2"))
        compress_avx2(state, words);
    else
#endif
        compress_plain(state, words);
}

/* Write block number `block` of the padded string. */
static inline void padded_block(const uint8_t *key, int32_t size, int32_t block, uint8_t out[BLOCK])
{
    int64_t left = (int64_t)size - (int64_t)block * BLOCK, blocks = (size + 8) / BLOCK + 1;
    memset(out, 0, BLOCK);
    if (left > 0)
        memcpy(out, key + (size_t)block * BLOCK, left < BLOCK ? (size_t)left : BLOCK);
    if (left >= 0 && left < BLOCK)
        out[left] = 0x80;
    if (block == blocks - 1)
        for (int byte = 0; byte < 8; byte++)
            out[56 + byte] = (uint8_t)((uint64_t)size << 3 >> 8 * byte);
}

static void md5_lanes(const uint8_t *const *keys, const int32_t *sizes, int count, uint8_t (*digests)[16])
{
    static const uint32_t initial[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    lanes state[4], words[16];
    int32_t most_blocks = 0, blocks[LANES] = {0};
    for (int lane = 0; lane < count; lane++) {
        blocks[lane] = (sizes[lane] + 8) / BLOCK + 1;
        most_blocks = blocks[lane] > most_blocks ? blocks[lane] : most_blocks;
    }
    for (int word = 0; word < 4; word++)
        for (int lane = 0; lane < LANES; lane++)
            state[word][lane] = initial[word];
    memset(words, 0, sizeof words);
    for (int32_t block = 0; block < most_blocks; block++) {
        for (int lane = 0; lane < count; lane++) {
            if (block >= blocks[lane])
                continue;
            uint8_t bytes[BLOCK];
            padded_block(keys[lane], sizes[lane], block, bytes);
            for (int word = 0; word < 16; word++) {
                const uint8_t *at = bytes + 4 * word;
                words[word][lane] = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
            }
        }
        compress_best(state, words);
        for (int lane = 0; lane < count; lane++)
            if (block == blocks[lane] - 1)
                for (int byte = 0; byte < 16; byte++)
                    digests[lane][byte] = (uint8_t)(state[byte / 4][lane] >> 8 * (byte % 4));
    }
}

void md5_many(const uint8_t *const *keys, const int32_t *sizes, int count, uint8_t (*digests)[16])
{
    for (int done = 0; done < count; done += LANES)
        md5_lanes(keys + done, sizes + done, count - done < LANES ? count - done : LANES, digests + done);
}
