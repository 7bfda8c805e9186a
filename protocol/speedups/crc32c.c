/* CRC-32C with the processor's instruction where there is one, else by tables for eight bytes at a time. */
#include "speedups.h"

static uint32_t table[8][256];

void crc32c_prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82F63B78 & (0 - (crc & 1)));
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

#if defined(__clang__)
#define WITH_CRC32 __attribute__((target("sse4.2,crc32")))
#else
#define WITH_CRC32 __attribute__((target("sse4.2")))
#endif

WITH_CRC32 static uint32_t by_instruction(const uint8_t *data, size_t size)
{
    uint64_t crc = 0xFFFFFFFF, word;
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; size; data++, size--)
        crc = _mm_crc32_u8((uint32_t)crc, *data);
    return ~(uint32_t)crc;
}

uint32_t crc32c(const uint8_t *data, size_t size)
{
    return __builtin_cpu_supports("sse4.2") ? by_instruction(data, size) : by_tables(data, size);
}

#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>

uint32_t crc32c(const uint8_t *data, size_t size)
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

#else

uint32_t crc32c(const uint8_t *data, size_t size) { return by_tables(data, size); }

#endif
