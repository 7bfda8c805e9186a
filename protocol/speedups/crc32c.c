/* CRC-32C with the processor's instruction if it has one, else with tables for eight bytes at a time. */
#include "speedups.h"

enum { STRETCH = 256 };
static const uint32_t polynomial = 0x82F63B78;
static uint32_t table[8][256], past_one, past_two;

static inline uint32_t times_x(uint32_t crc) { return crc >> 1 ^ (polynomial & (0 - (crc & 1))); }

/* Return the factor that moves a CRC past `bytes` zero bytes, without the x³³ of multiplication and reduction. */
static uint32_t power_of_x(int bytes)
{
    uint32_t power = 0x80000000;
    for (int bit = 33; bit < 8 * bytes; bit++)
        power = times_x(power);
    return power;
}

void crc32c_prepare(void)
{
    past_one = power_of_x(STRETCH), past_two = power_of_x(2 * STRETCH);
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = times_x(crc);
        table[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int byte = 0; byte < 256; byte++)
            table[slice][byte] = table[slice - 1][byte] >> 8 ^ table[0][table[slice - 1][byte] & 0xFF];
}

static uint32_t by_tables(const uint8_t *data, size_t size)
{
    uint32_t crc = 0xFFFFFFFF;
    for (; size >= 8; data += 8, size -= 8) {
        crc ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        crc = table[7][crc & 0xFF] ^ table[6][crc >> 8 & 0xFF] ^ table[5][crc >> 16 & 0xFF] ^ table[4][crc >> 24]
            ^ table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
    }
    for (; size; data++, size--)
        crc = crc >> 8 ^ table[0][(crc ^ *data) & 0xFF];
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#include <wmmintrin.h>

#if defined(__clang__)
#define WITH_CRC32 __attribute__((target("sse4.2,crc32,pclmul")))
#else
#define WITH_CRC32 __attribute__((target("sse4.2,pclmul")))
#endif

WITH_CRC32 static inline uint64_t add_word(uint64_t crc, const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, 8);
    return _mm_crc32_u64(crc, word);
}

/* Return the CRC after the zero bytes of `power`, see `power_of_x`. */
WITH_CRC32 static inline uint64_t shifted(uint64_t crc, uint32_t power)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi64_si128((int64_t)power), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* Three stretches in parallel: the instruction has a latency of three cycles and a throughput of one per cycle. */
WITH_CRC32 static uint32_t by_instruction(const uint8_t *data, size_t size)
{
    uint64_t crc = 0xFFFFFFFF;
    for (; size >= 3 * STRETCH; data += 3 * STRETCH, size -= 3 * STRETCH) {
        uint64_t second = 0, third = 0;
        for (size_t at = 0; at < STRETCH; at += 8) {
            crc = add_word(crc, data + at);
            second = add_word(second, data + STRETCH + at);
            third = add_word(third, data + 2 * STRETCH + at);
        }
        crc = shifted(crc, past_two) ^ shifted(second, past_one) ^ third;
    }
    for (; size >= 8; data += 8, size -= 8)
        crc = add_word(crc, data);
    for (; size; data++, size--)
        crc = _mm_crc32_u8((uint32_t)crc, *data);
    return ~(uint32_t)crc;
}

uint32_t crc32c(const uint8_t *data, size_t size)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") ? by_instruction(data, size)
                                                                                : by_tables(data, size);
}

#elif defined(__aarch64__) && defined(__GNUC__) && (defined(__linux__) || defined(__ARM_FEATURE_CRC32))
#include <arm_acle.h>

#if defined(__ARM_FEATURE_CRC32)
#define WITH_CRC32
static inline int has_instruction(void) { return 1; }
#else /* the compiler may not assume the instruction: the first 64-bit processors lack it */
#include <sys/auxv.h>
#if defined(__clang__)
#define WITH_CRC32 __attribute__((target("crc")))
#else
#define WITH_CRC32 __attribute__((target("+crc")))
#endif
static inline int has_instruction(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

WITH_CRC32 static uint32_t by_instruction(const uint8_t *data, size_t size)
{
    uint32_t crc = 0xFFFFFFFF;
    uint64_t word;
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        crc = __crc32cd(crc, word);
    }
    for (; size; data++, size--)
        crc = __crc32cb(crc, *data);
    return ~crc;
}

uint32_t crc32c(const uint8_t *data, size_t size)
{
    return has_instruction() ? by_instruction(data, size) : by_tables(data, size);
}

#else

uint32_t crc32c(const uint8_t *data, size_t size) { return by_tables(data, size); }

#endif
